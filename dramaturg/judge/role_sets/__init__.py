"""Objective roles of the package: one file per kind of task; and the votes of roles, combined (DRPE)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ROLE_ORIGIN_OBJECTIVE, Role

SUMMARISATION = "summarisation"
"""For summaries of a source text."""
SCRIPT = "script"
"""For step-by-step instructions."""
DIALOGUE = "dialogue"
"""For responses of a simulator."""
OPEN_ANSWER = "open-answer"
"""For answers to open questions."""
FIXED_ROLES = "fixed-roles"
"""Six fixed readers for all texts: the baseline ManualDRPE (DRPE, section 4.1)."""

NAMES = (SUMMARISATION, SCRIPT, DIALOGUE, OPEN_ANSWER, FIXED_ROLES)
"""Every set."""

_FOLDER = Path(__file__).parent


class UnknownRoleSetError(LookupError):
    """The set does not exist; the message lists the existing ones."""


@cache
def role_set(name: str) -> tuple[Role, ...]:
    """Returns the roles of a set, in the order of its file. They are shared: copy a role before changing it.

    Raises:
        UnknownRoleSetError: The set does not exist.
    """
    if name not in NAMES:
        raise UnknownRoleSetError(f"there is no role set {name!r}; there are {', '.join(NAMES)}")
    entries = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return tuple(Role(**entry, origin=ROLE_ORIGIN_OBJECTIVE) for entry in entries)


def tally(votes: Sequence[pb.RoleVote]) -> pb.Preference.ValueType:
    """The preference of the majority of votes: a tie for equal counts, an abstention where all abstain."""
    preferences = [one.preference for one in votes]
    if all(preference == pb.PREFERENCE_ABSTAIN for preference in preferences):
        return pb.PREFERENCE_ABSTAIN
    lead = preferences.count(pb.PREFERENCE_FIRST) - preferences.count(pb.PREFERENCE_SECOND)
    if lead == 0:
        return pb.PREFERENCE_TIE
    return pb.PREFERENCE_FIRST if lead > 0 else pb.PREFERENCE_SECOND


def combine_votes(votes: Sequence[pb.RoleVote]) -> pb.ComparePairResponse:
    """Combines votes into a response, without provenance.

    DRPEScores, the sums of the confidences of the votes for each text, are absent where a vote that does not
    abstain has no confidence, and where all abstain.
    """
    combined = pb.ComparePairResponse(votes=votes, preference=tally(votes))
    cast = [one for one in votes if one.preference != pb.PREFERENCE_ABSTAIN]
    if not cast:
        return combined
    first, second = (
        [one for one in cast if one.preference == side]
        for side in (pb.PREFERENCE_FIRST, pb.PREFERENCE_SECOND)
    )
    combined.first_vote_share = (len(first) + (len(cast) - len(first) - len(second)) / 2) / len(cast)
    if all(one.HasField("confidence") for one in cast):
        combined.first_drpe_score = math.fsum(one.confidence for one in first)
        combined.second_drpe_score = math.fsum(one.confidence for one in second)
    return combined


def breach(request: pb.ComparePairRequest, response: pb.ComparePairResponse) -> str:
    """The first contradiction in an answer of a judge of pairs, as text without words of the answer.

    Ballots and sums may be missing. Empty: there is none.
    """
    roles = request.roles or [pb.Role()]
    if len(response.votes) != len(roles):
        return f"it gave {len(response.votes)} votes for {len(roles)}"
    if any(vote.role != role for vote, role in zip(response.votes, roles, strict=True)):
        return "its votes are not in the order of the roles"
    orders = 1 if request.order in _ONE_ORDER else 2
    for vote in response.votes:
        if fault := _fault("a vote", vote):
            return fault
        if len(vote.ballots) not in {0, orders}:
            return f"a vote has {len(vote.ballots)} ballots for {orders} orders"
        for ballot in vote.ballots:
            if fault := _fault("a ballot", ballot):
                return fault
    combined = combine_votes(response.votes)
    if response.preference != combined.preference:
        return "its preference is not that of its votes"
    for name in _SUMS:
        if response.HasField(name) and not (
            combined.HasField(name)
            and math.isclose(getattr(response, name), getattr(combined, name), abs_tol=1e-6)
        ):
            return f"its {name} is not that of its votes"
    return ""


_ONE_ORDER = frozenset({pb.PRESENTATION_ORDER_AS_GIVEN, pb.PRESENTATION_ORDER_SWAPPED})
_PREFERENCES = frozenset(
    {pb.PREFERENCE_FIRST, pb.PREFERENCE_SECOND, pb.PREFERENCE_TIE, pb.PREFERENCE_ABSTAIN}
)
_SUMS: Sequence[Literal["first_vote_share", "first_drpe_score", "second_drpe_score"]] = (
    "first_vote_share",
    "first_drpe_score",
    "second_drpe_score",
)


def _fault(what: str, stated: pb.RoleVote | pb.Ballot) -> str:
    if stated.preference not in _PREFERENCES:
        return f"{what} has no preference"
    if (stated.preference == pb.PREFERENCE_ABSTAIN) != bool(stated.abstain_reason):
        return f"{what} abstains without a reason, or has a reason and does not abstain"
    if stated.HasField("confidence") and not 0.0 < stated.confidence <= 1.0:
        return f"{what} has a confidence that is not in (0, 1]"
    return ""
