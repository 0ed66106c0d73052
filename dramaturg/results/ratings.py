"""Ratings of replies: one for each reply, and scripts that tell no models apart (SimulBench)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean

from dramaturg.api.evaluation.v1.dialogues_pb2 import ReplyRating

LOWEST, HIGHEST = 1.0, 10.0
"""The ends of the scale of ratings."""


def reply_ratings(ratings: Iterable[ReplyRating]) -> dict[str, float | None]:
    """The rating of each model's reply to one script: the mean over those of its judges that rated it.

    None: every judge abstained.
    """
    values: dict[str, list[float]] = {}
    for rated in ratings:
        mine = values.setdefault(rated.model, [])
        if rated.rating.HasField("value"):
            mine.append(rated.rating.value)
    return {model: fmean(mine) if mine else None for model, mine in values.items()}


def is_aced(ratings: Mapping[str, float | None]) -> bool:
    """Whether every one of two models or more has the highest rating on a script.

    Such a script tells no models apart; the paper leaves it out (section 2.4).

    Args:
        ratings: The rating of each model's reply.
    """
    return len(ratings) > 1 and all(rating == HIGHEST for rating in ratings.values())
