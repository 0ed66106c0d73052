"""Which of two texts stands first: drawn, so that it says nothing about which is better."""

from __future__ import annotations

import random

from dramaturg.api.evaluation.v1.texts_pb2 import CompareTextsRequest
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb

SEED_TAG = "presentation-seed"
"""The tag that records the seed by which texts were put in order."""
SWAPPED_TAG = "swapped"
"""The tag that records whether an evaluation swapped a row's texts."""

_MIRRORED = {pb.PREFERENCE_FIRST: pb.PREFERENCE_SECOND, pb.PREFERENCE_SECOND: pb.PREFERENCE_FIRST}


def shuffle(request: CompareTextsRequest, seed: int, line: int) -> None:
    """Swaps the texts of a request, or does not, and records in its tags what was done.

    The draw depends on the seed and the row alone, so any order of evaluation, and any part of a file, gives
    the same presentation.

    Args:
        request: The request; changed.
        seed: The seed.
        line: The number of the row's line.
    """
    swapped = random.Random(f"{seed}/{line}/{request.id}").random() < 0.5  # noqa: S311 - an order, no secret
    if swapped:
        first = type(request.first)()
        first.CopyFrom(request.first)
        request.first.CopyFrom(request.second)
        request.second.CopyFrom(first)
        request.human_preference = _MIRRORED.get(request.human_preference, request.human_preference)
    request.tags[SEED_TAG] = str(seed)
    request.tags[SWAPPED_TAG] = "true" if swapped else "false"
