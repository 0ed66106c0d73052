"""The votes of roles on two texts, combined (DRPE, section 3.4 and equation 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb


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
