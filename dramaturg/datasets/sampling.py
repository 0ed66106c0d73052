"""Random samples of rows."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TypeVar

Row = TypeVar("Row")


def draw(rows: Iterable[Row], count: int, seed: int) -> list[Row]:
    """Draws ``count`` rows with equal probability, in one pass (Vitter 1985, algorithm R)."""
    chance = random.Random(seed)  # noqa: S311 - which rows are drawn is no secret
    kept: list[Row] = []
    for index, row in enumerate(rows):
        if index < count:
            kept.append(row)
        elif (place := chance.randrange(index + 1)) < count:
            kept[place] = row
    return kept
