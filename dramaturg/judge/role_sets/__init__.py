"""Objective roles of the package: one file per kind of task; and the votes of roles, combined (DRPE)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

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
