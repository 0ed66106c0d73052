"""Votes of ballots, and the result of all votes (DRPE, equations 1 to 4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from services.judging.pairs.form import FIRST_SHOWN, NEITHER, SECOND_SHOWN, Reading, Vote

_AS_GIVEN = {
    FIRST_SHOWN: pb.PREFERENCE_FIRST,
    SECOND_SHOWN: pb.PREFERENCE_SECOND,
    NEITHER: pb.PREFERENCE_TIE,
}
_SWAPPED = {
    FIRST_SHOWN: pb.PREFERENCE_SECOND,
    SECOND_SHOWN: pb.PREFERENCE_FIRST,
    NEITHER: pb.PREFERENCE_TIE,
}


def ballot(
    order: pb.PresentationOrder.ValueType, reading: Reading, confidence: float | None = None
) -> pb.Ballot:
    """Makes the ballot of a role in one order, in terms of the request's first and second text."""
    if not isinstance(reading, Vote):
        return pb.Ballot(
            order=order,
            preference=pb.PREFERENCE_ABSTAIN,
            rationale=reading.explanation,
            abstain_reason=reading.reason,
        )
    preferences = _SWAPPED if order == pb.PRESENTATION_ORDER_SWAPPED else _AS_GIVEN
    return pb.Ballot(
        order=order,
        preference=preferences[reading.choice],
        rationale=reading.reason.strip(),
        confidence=confidence,
    )


def vote(role: pb.Role | None, ballots: Sequence[pb.Ballot]) -> pb.RoleVote:
    """Returns a role's vote over all orders: the agreed preference, else a tie. An abstention is kept."""
    abstention = next((one for one in ballots if one.preference == pb.PREFERENCE_ABSTAIN), None)
    if abstention is not None:
        return pb.RoleVote(
            role=role,
            preference=pb.PREFERENCE_ABSTAIN,
            abstain_reason=abstention.abstain_reason,
            ballots=ballots,
        )
    inconsistent = len({one.preference for one in ballots}) > 1
    return pb.RoleVote(
        role=role,
        preference=pb.PREFERENCE_TIE if inconsistent else ballots[0].preference,
        ballots=ballots,
        inconsistent=inconsistent,
        confidence=_mean_confidence(ballots),
    )


def combine(votes: Sequence[pb.RoleVote]) -> pb.ComparePairResponse:
    """Combines the votes into the response, without provenance."""
    cast = [one for one in votes if one.preference != pb.PREFERENCE_ABSTAIN]
    if not cast:
        return pb.ComparePairResponse(votes=votes, preference=pb.PREFERENCE_ABSTAIN)
    first = [one for one in cast if one.preference == pb.PREFERENCE_FIRST]
    second = [one for one in cast if one.preference == pb.PREFERENCE_SECOND]
    preference = pb.PREFERENCE_TIE
    if len(first) != len(second):
        preference = pb.PREFERENCE_FIRST if len(first) > len(second) else pb.PREFERENCE_SECOND
    ties = len(cast) - len(first) - len(second)
    return pb.ComparePairResponse(
        votes=votes,
        preference=preference,
        first_drpe_score=_drpe_score(first),
        second_drpe_score=_drpe_score(second),
        first_vote_share=(len(first) + ties / 2) / len(cast),
    )


def _drpe_score(votes: Iterable[pb.RoleVote]) -> float | None:
    """Equation 4: the sum of the confidences; None if a vote has no confidence."""
    confidences = [one.confidence if one.HasField("confidence") else None for one in votes]
    known = [one for one in confidences if one is not None]
    return math.fsum(known) if len(known) == len(confidences) else None


def _mean_confidence(ballots: Sequence[pb.Ballot]) -> float | None:
    if not all(one.HasField("confidence") for one in ballots):
        return None
    return math.fsum(one.confidence for one in ballots) / len(ballots)
