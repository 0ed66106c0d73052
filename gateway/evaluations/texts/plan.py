"""The plan of an evaluation of texts: the rubric and its judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluatedText, EvaluateTextsRequest
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, CriterionScale
from dramaturg.judge.roles import RUBRIC_JUDGE, RULE_JUDGE, Role
from dramaturg.judge.rubrics import encode_criterion
from dramaturg.judge.steps import is_blank
from dramaturg.service.errors import Violation, invalid_fields
from gateway.evaluations.checks import check_distinct, check_rubric
from gateway.judges.registry import Registry
from gateway.judges.selection import JudgeAssignment, Shadow, check_selections, select_judges, select_shadows

ROLES = (RUBRIC_JUDGE, RULE_JUDGE)
"""The roles of judges of texts."""


@dataclass(frozen=True)
class TextsPlan:
    """A valid request and its judges."""

    request: EvaluateTextsRequest
    assignments: tuple[JudgeAssignment, ...]
    """The judges, as selected."""
    shadows: tuple[Shadow, ...] = ()
    """The shadows of the judges."""

    @cached_property
    def criteria(self) -> Mapping[str, Criterion]:
        """The criteria as judges get them, by id, in the order of the rubric."""
        return {one.id: encode_criterion(one) for one in self.request.criteria}

    def criteria_of(self, role: Role) -> Mapping[str, Criterion]:
        """The criteria that judges of a role get: those with a rule, or all others."""
        by_rule = role == RULE_JUDGE
        return {name: one for name, one in self.criteria.items() if one.HasField("rule") == by_rule}

    @cached_property
    def scales(self) -> Mapping[str, CriterionScale]:
        """The scales of the criteria that are scored."""
        return {one.id: one.scale for one in self.request.criteria if one.HasField("scale")}

    @cached_property
    def judged(self) -> Sequence[EvaluatedText]:
        """The texts that judges get: those with content."""
        return [one for one in self.request.texts if one.HasField("conversation") or not is_blank(one.text)]

    def accepted(self) -> EvaluationAccepted:
        """The event that states the plan."""
        return EvaluationAccepted(
            judges=[assignment.describe() for assignment in self.assignments],
            assessment_count=len(self.assignments) * len(self.judged),
        )


def plan_texts(request: EvaluateTextsRequest, registry: Registry) -> TextsPlan:
    """Plans the evaluation of a request that is within the contract's limits.

    Args:
        request: The request.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN;
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    violations = [
        *check_distinct("texts", [one.id for one in request.texts]),
        *check_rubric(request.criteria),
        *(
            Violation(f"texts[{index}].text", "must be empty beside a conversation")
            for index, one in enumerate(request.texts)
            if one.text and one.HasField("conversation")
        ),
        *check_selections(request.judges, ROLES, registry.roles),
    ]
    if violations:
        raise invalid_fields(violations)
    ruled = [one.HasField("rule") for one in request.criteria]
    wanted = tuple(role for role in ROLES if (role == RULE_JUDGE) in ruled)
    assignments = select_judges(request.judges, wanted, registry, request.options.model)
    return TextsPlan(request, assignments, select_shadows(request.shadows, assignments, registry))
