"""The roles of a comparison: objective and generated roles, clustered, and their votes (DRPE, section 3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.pairs_pb2 import RolesKnown
from dramaturg.api.evaluation.v1.summary_pb2 import PairsSummary, RoleFigures
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ROLE_ORIGIN_OBJECTIVE, Role
from dramaturg.api.roles.v1.role_service_pb2 import (
    ClusterRolesRequest,
    ClusterRolesResponse,
    GenerateRolesRequest,
    GenerateRolesResponse,
)
from dramaturg.api.roles.v1.role_service_pb2_grpc import RoleServiceStub
from dramaturg.judge.roles import role_shortage
from dramaturg.service.validation import violations
from gateway.evaluations.calls import ask, judge_options
from gateway.evaluations.failures import Failure
from gateway.evaluations.pairs.plan import PairsPlan
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.verdict_figures import OrderEffect
from gateway.judges.selection import JudgeAssignment

MAX_ROLES = 500
"""The most roles with figures: those with most votes."""

_Key = tuple[str, int, str]
"""The method, the origin and the type of a role, without case and spaces."""


@dataclass
class _Votes:
    role: pb.Role
    choices: Counter[pb.Preference.ValueType] = field(default_factory=Counter)
    labelled: int = 0
    agreed: int = 0
    order: OrderEffect = field(default_factory=OrderEffect)


class RoleVotes:
    """The votes of the roles of all pairs."""

    def __init__(self) -> None:
        self._votes: dict[_Key, _Votes] = {}
        self._clustered = False

    def note_clustering(self) -> None:
        """Notes that roles were clustered: their embeddings can be compared."""
        self._clustered = True

    def add(self, method: str, votes: Sequence[pb.RoleVote], human: pb.Preference.ValueType) -> None:
        """Adds the votes on a pair; those of a judge without a role are left out.

        Args:
            method: The method.
            votes: The votes.
            human: What people prefer. Unspecified: not known.
        """
        for vote in votes:
            if not vote.role.type:
                continue
            key = method, vote.role.origin, " ".join(vote.role.type.casefold().split())
            found = self._votes.setdefault(key, _Votes(vote.role))
            found.choices[vote.preference] += 1
            found.order.add(vote.ballots)
            if human and vote.preference != pb.PREFERENCE_ABSTAIN:
                found.labelled += 1
                found.agreed += vote.preference == human

    def write(self, summary: PairsSummary, statistics: Statistics) -> None:
        """Writes the figures."""
        ordered = sorted(self._votes.items(), key=lambda one: (-one[1].choices.total(), one[0]))
        summary.role_count = len(ordered)
        for (method, _, _), votes in ordered[:MAX_ROLES]:
            summary.roles.append(_figures(method, votes))
        if self._clustered and summary.roles:
            _place(summary, statistics)


def maps_all(response: ClusterRolesResponse, count: int) -> bool:
    """Whether a map, which may be another team's, has a valid point for each of ``count`` roles."""
    return len(response.map.points) == count and not violations(response.map)


def _figures(method: str, votes: _Votes) -> RoleFigures:
    return RoleFigures(
        method=method,
        role=votes.role,
        first_count=votes.choices[pb.PREFERENCE_FIRST],
        second_count=votes.choices[pb.PREFERENCE_SECOND],
        tie_count=votes.choices[pb.PREFERENCE_TIE],
        abstention_count=votes.choices[pb.PREFERENCE_ABSTAIN],
        labelled_count=votes.labelled,
        agreed_count=votes.agreed,
        both_orders_count=votes.order.both,
        inconsistent_share=votes.order.inconsistent_share,
    )


def _place(summary: PairsSummary, statistics: Statistics) -> None:
    """Writes the points and clusters of the listed roles, each role once for all methods."""
    rows = defaultdict[tuple[str, str, int], list[RoleFigures]](list)
    for one in summary.roles:
        rows[one.role.type, one.role.description, one.role.origin].append(one)
    request = ClusterRolesRequest(roles=[some[0].role for some in rows.values()])
    response: ClusterRolesResponse | None = statistics.roles("ClusterRoles", request)
    if response is None or not maps_all(response, len(rows)):
        return
    clusters = {index: number for number, one in enumerate(response.clusters) for index in one.member_indices}
    for index, (point, some) in enumerate(zip(response.map.points, rows.values(), strict=True)):
        for one in some:
            one.point.CopyFrom(point)
            if index in clusters:
                one.cluster = clusters[index]
    if response.map.HasField("explained_share"):
        summary.role_map_explained_share = response.map.explained_share
    summary.role_map_model = response.provenance.parameters.get("embedding_model", "")


async def find_roles(plan: PairsPlan, scope: EvaluationScope) -> RolesKnown:
    """Generates and clusters the roles.

    A failure is reported in ``failure`` and raises no error: the roles found so far judge. Generation and
    clustering each take at most half of the time left.

    Args:
        plan: The plan of the evaluation.
        scope: What the calls of the evaluation share.
    """
    known = RolesKnown(roles=[*plan.objective, *plan.request.roles.subjective_roles])
    failures: list[str] = []
    if plan.finder is not None and plan.generated:
        failures += await _generate(plan, plan.finder, scope, known)
    if plan.finder is not None and plan.clustered and _has_subjective(known.roles):
        failures += await _cluster(plan, plan.finder, scope, known)
    known.failure = " ".join(failures)
    return known


async def _generate(
    plan: PairsPlan, finder: JudgeAssignment, scope: EvaluationScope, known: RolesKnown
) -> Sequence[str]:
    """Adds generated roles; returns the reasons for the absence of some."""
    request = GenerateRolesRequest(
        source=plan.request.roles.topic or plan.request.source,
        coarse_count=plan.coarse_count,
        fine_count=plan.fine_count,
        options=judge_options(finder, plan.request),
    )
    stub = RoleServiceStub(finder.judge.channel)
    left = _half_left(scope)
    response = await ask(finder, scope, stub.GenerateRoles, request, GenerateRolesResponse, left=left)
    if isinstance(response, Failure):
        return [f"No roles were generated: {finder.judge.name!r} {response.explanation}."]
    _register(response.provenance, finder)
    known.generation.CopyFrom(response)
    # A role beyond the contract's limits would make the whole comparison fail.
    sound = [role for role in response.roles if not violations(role)]
    wanted = plan.coarse_count + plan.fine_count
    taken = sound[:wanted]
    known.roles.extend(taken)
    if not taken:
        return [f"No roles were generated: {response.failure or 'the answer has no usable role.'}"]
    shortage = role_shortage(len(taken), wanted)
    return [shortage] if shortage else []


async def _cluster(
    plan: PairsPlan, finder: JudgeAssignment, scope: EvaluationScope, known: RolesKnown
) -> Sequence[str]:
    """Drops similar roles; returns the reasons for keeping all."""
    wish = plan.request.roles
    request = ClusterRolesRequest(
        roles=known.roles,
        eps=wish.eps if wish.HasField("eps") else None,
        min_samples=wish.min_samples if wish.HasField("min_samples") else None,
    )
    stub = RoleServiceStub(finder.judge.channel)
    left = _half_left(scope)
    response = await ask(finder, scope, stub.ClusterRoles, request, ClusterRolesResponse, left=left)
    if isinstance(response, Failure):
        return [f"The roles are not clustered: {finder.judge.name!r} {response.explanation}."]
    _register(response.provenance, finder)
    known.clustering.CopyFrom(response)
    known.clustered_roles.extend(known.roles)
    if not maps_all(response, len(known.roles)):
        known.clustering.ClearField("map")
    kept = [role for role in known.roles if role.origin == ROLE_ORIGIN_OBJECTIVE or role in response.roles]
    del known.roles[:]
    known.roles.extend(kept)
    return []


def _half_left(scope: EvaluationScope) -> float | None:
    left = scope.left()
    return None if left is None else left / 2


def _register(provenance: Provenance, finder: JudgeAssignment) -> None:
    provenance.registered_name = finder.judge.name


def _has_subjective(roles: Sequence[Role]) -> bool:
    return any(role.origin != ROLE_ORIGIN_OBJECTIVE for role in roles)
