"""The plan of a comparison of texts: roles, role service and judges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest, RolePlan
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ROLE_ORIGIN_OBJECTIVE, Role
from dramaturg.judge.role_sets import FIXED_ROLES, NAMES, SUMMARISATION, role_set
from dramaturg.judge.roles import ALIGNMENT, PAIR_JUDGE, ROLES_FINDER
from dramaturg.judge.roles import Role as ServiceRole
from dramaturg.judge.rules import check_rubric, criterion_role
from dramaturg.kinds.pairs.text_metrics import METRICS
from dramaturg.service.errors import Violation, invalid_fields
from dramaturg.service.validation import check_distinct, violations
from gateway.evaluations.checks import check_alone
from gateway.judges.registry import Registry
from gateway.judges.selection import JudgeAssignment, Shadow, check_selections, select_judges, select_shadows

BY_ROLES = "roles"
"""The method of DRPE: all roles vote."""
BY_ONE_JUDGE = "llm"
"""The baseline of one judge without a role (DRPE, section 4.1, LLMScore)."""
BY_FIXED_ROLES = FIXED_ROLES
"""The baseline of six fixed roles (DRPE, section 4.1, ManualDRPE)."""
BASELINES = (BY_ONE_JUDGE, BY_FIXED_ROLES)
"""Every baseline."""

DEFAULT_COARSE_COUNT = 3
DEFAULT_FINE_COUNT = 2
"""The default counts, together the five subjective roles of DRPE, section 4.1."""
MOST_ROLES = 100
"""The maximum number of roles of one comparison (``judging.v1.ComparePairRequest``)."""


@dataclass(frozen=True)
class PairsPlan:
    """A valid request, its roles and its judges."""

    request: EvaluatePairsRequest
    objective: tuple[Role, ...]
    """The objective roles."""
    coarse_count: int
    """The number of coarse roles to generate."""
    fine_count: int
    """The number of fine roles to generate."""
    clustered: bool
    """Whether similar roles are merged by clustering."""
    finder: JudgeAssignment | None
    """The role service. None if none is needed."""
    judges: tuple[JudgeAssignment, ...]
    """The pair judges. Several are a panel; each compares independently. Empty where judging is omitted."""
    scorer: JudgeAssignment | None
    """The service of the text metrics. None without metrics."""
    shadows: tuple[Shadow, ...] = ()
    """The shadows of the pair judges."""

    @property
    def generated(self) -> bool:
        """Whether subjective roles are generated."""
        return self.coarse_count + self.fine_count > 0

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of comparison: by roles, then the baselines as requested."""
        return (BY_ROLES, *self.request.baselines)

    @property
    def order_count(self) -> int:
        """The number of orders in which the texts are presented."""
        one_order = (pb.PRESENTATION_ORDER_AS_GIVEN, pb.PRESENTATION_ORDER_SWAPPED)
        return 1 if self.request.order in one_order else 2

    def accepted(self) -> EvaluationAccepted:
        """The event that states the plan."""
        assignments = (*([self.finder] if self.finder else []), *self.judges)
        return EvaluationAccepted(
            judges=[assignment.describe() for assignment in assignments],
            assessment_count=len(self.judges) * len(self.methods),
        )


def plan_pairs(request: EvaluatePairsRequest, registry: Registry) -> PairsPlan:
    """Plans the comparison of a request that is within the contract's limits.

    Args:
        request: The request.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN;
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    coarse_count, fine_count = _counts(request)
    subjective_count = len(request.roles.subjective_roles) + coarse_count + fine_count
    # Clustering keeps all objective roles, so without others it has no effect.
    clustered = subjective_count > 0 and not request.roles.clustering_omitted
    wanted: tuple[ServiceRole, ...] = (PAIR_JUDGE,)
    if request.judging_omitted:
        wanted = ()
    elif clustered or coarse_count + fine_count:
        wanted = (ROLES_FINDER, PAIR_JUDGE)
    if request.text_metrics:
        wanted = (*wanted, ALIGNMENT)
    found = [
        *check_role_plan(request.roles),
        *_check_baselines(request),
        *_check_metrics(request),
        # Selections of roles that this request does not need are allowed.
        *check_selections(request.judges, (ROLES_FINDER, PAIR_JUDGE), registry.roles),
        *check_alone(request.judges, (ROLES_FINDER,)),
    ]
    if found:
        raise invalid_fields(found)
    objective = _objective(request)
    if len(objective) + subjective_count > MOST_ROLES:
        raise invalid_fields(
            [
                Violation(
                    "roles",
                    f"asks for {len(objective) + subjective_count} roles in total; at most {MOST_ROLES}",
                )
            ]
        )
    assignments = select_judges(request.judges, wanted, registry, request.options.model)
    judges = tuple(assignment for assignment in assignments if assignment.role is PAIR_JUDGE)
    return PairsPlan(
        request=request,
        objective=objective,
        coarse_count=coarse_count,
        fine_count=fine_count,
        clustered=clustered,
        finder=next((assignment for assignment in assignments if assignment.role is ROLES_FINDER), None),
        judges=judges,
        scorer=next((assignment for assignment in assignments if assignment.role is ALIGNMENT), None),
        shadows=select_shadows(request.shadows, judges, registry),
    )


def _counts(request: EvaluatePairsRequest) -> tuple[int, int]:
    """The numbers of coarse and fine roles to generate."""
    roles = request.roles
    if roles.subjective_roles or roles.criteria:
        return 0, 0
    return (
        roles.coarse_count if roles.HasField("coarse_count") else DEFAULT_COARSE_COUNT,
        roles.fine_count if roles.HasField("fine_count") else DEFAULT_FINE_COUNT,
    )


def _objective(request: EvaluatePairsRequest) -> tuple[Role, ...]:
    if request.roles.criteria:
        return tuple(map(criterion_role, request.roles.criteria))
    given = request.roles.objective_roles
    if not given:
        return role_set(request.roles.objective_set or SUMMARISATION)
    # The field of the request determines the origin, not the role's own value.
    return tuple(
        Role(type=role.type, description=role.description, origin=ROLE_ORIGIN_OBJECTIVE) for role in given
    )


def check_role_plan(roles: RolePlan) -> Iterator[Violation]:
    """Finds roles and criteria that exclude each other or are invalid, at the path "roles"."""
    if roles.objective_set and roles.objective_roles:
        yield Violation("roles.objective_set", "must be empty where objective_roles are given")
    if roles.objective_set and roles.objective_set not in NAMES:
        yield Violation("roles.objective_set", f"is {roles.objective_set!r}; the sets are {', '.join(NAMES)}")
    for index, role in enumerate(roles.subjective_roles):
        if role.origin == ROLE_ORIGIN_OBJECTIVE:
            yield Violation(
                f"roles.subjective_roles[{index}].origin",
                "is ROLE_ORIGIN_OBJECTIVE; objective roles belong in objective_roles",
            )
    if roles.criteria:
        yield from _check_criteria(roles)


def _check_criteria(roles: RolePlan) -> Iterator[Violation]:
    yield from check_rubric(roles.criteria, "roles.criteria")
    for index, one in enumerate(roles.criteria):
        if one.each:
            yield Violation(f"roles.criteria[{index}].each", "must be absent: a pair has two texts")
    for index, one in enumerate(roles.criteria):
        if one.HasField("rule"):
            yield Violation(f"roles.criteria[{index}].rule", "must be absent: judges of pairs apply no rules")
        if found := violations(criterion_role(one)):
            yield Violation(
                f"roles.criteria[{index}]", f"is no role: its {found[0].field} {found[0].description}"
            )
    for name in (
        "objective_set",
        "objective_roles",
        "subjective_roles",
        "coarse_count",
        "fine_count",
        "topic",
    ):
        if getattr(roles, name):
            yield Violation(f"roles.{name}", "must be empty or 0 where criteria are given")


def _check_baselines(request: EvaluatePairsRequest) -> Iterator[Violation]:
    yield from check_distinct("baselines", request.baselines)
    for index, name in enumerate(request.baselines):
        if name.strip() and name not in BASELINES:
            yield Violation(f"baselines[{index}]", f"is {name!r}; the baselines are {', '.join(BASELINES)}")


def _check_metrics(request: EvaluatePairsRequest) -> Iterator[Violation]:
    yield from check_distinct("text_metrics", request.text_metrics)
    for index, name in enumerate(request.text_metrics):
        if name.strip() and name not in METRICS:
            yield Violation(f"text_metrics[{index}]", f"is {name!r}; the metrics are {', '.join(METRICS)}")
    if request.judging_omitted and request.baselines:
        yield Violation("baselines", "must be empty where judging is omitted")
