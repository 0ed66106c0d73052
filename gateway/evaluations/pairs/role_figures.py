"""The votes of roles, and the roles on a map of their embeddings (DRPE, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from dramaturg.api.evaluation.v1.summary_pb2 import PairsSummary, RoleFigures
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.api.roles.v1.role_service_pb2 import ClusterRolesRequest, ClusterRolesResponse
from dramaturg.service.validation import violations
from gateway.evaluations.order_effect import OrderEffect
from gateway.evaluations.statistics import Statistics

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
