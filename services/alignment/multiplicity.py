"""P-values adjusted for their number."""

from __future__ import annotations

from collections.abc import Sequence


def holm(values: Sequence[float | None]) -> list[float | None]:
    """P-values adjusted for their number, step down (Holm 1979), in the order given; ``None`` is no test."""
    tested = sorted((value, place) for place, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    highest = 0.0
    for done, (value, place) in enumerate(tested):
        highest = max(highest, min(1.0, (len(tested) - done) * value))
        adjusted[place] = highest
    return adjusted


def benjamini_hochberg(values: Sequence[float | None]) -> list[float | None]:
    """P-values adjusted for the false discovery rate (Benjamini and Hochberg 1995), in the order given."""
    tested = sorted((value, place) for place, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    lowest = 1.0
    for rank in range(len(tested), 0, -1):
        value, place = tested[rank - 1]
        lowest = min(lowest, value * len(tested) / rank)
        adjusted[place] = lowest
    return adjusted
