"""Equivalence tests of shares and of differences of shares (Schuirmann 1987).

Bounds are those of Clopper and Pearson (1934), which hold for every number of cases.
"""

from __future__ import annotations

from dramaturg.results.binomial import lower_bound, upper_bound

ERROR = 0.05
"""The one-sided error of each of the two tests of an equivalence test."""
WITHIN, OUTSIDE, NOT_SHOWN = "within", "outside", "not shown"
"""The conclusions of a test."""


def share_bounds(hits: int, total: int) -> tuple[float, float]:
    """The bounds of a share, each with the one-sided error ``ERROR``."""
    return lower_bound(hits, total, ERROR), upper_bound(hits, total, ERROR)


def shift_bounds(up: int, down: int, total: int) -> tuple[float, float]:
    """The bounds of the difference P(up) - P(down) of two kinds of change among the same cases.

    Each bound is the difference of a bound of either share with half the error, so that its error is at most
    ``ERROR`` however the two depend on each other (Bonferroni).
    """
    return difference_bounds((up, total), (down, total))


def difference_bounds(first: tuple[int, int], second: tuple[int, int]) -> tuple[float, float]:
    """The bounds of the difference of two shares, each a pair of hits and total (see ``shift_bounds``)."""
    half = ERROR / 2
    return (
        lower_bound(*first, half) - upper_bound(*second, half),
        upper_bound(*first, half) - lower_bound(*second, half),
    )


def conclude(lower: float, upper: float, tolerance: float) -> str:
    """The conclusion of two one-sided tests: by where the bounds lie beside the tolerance."""
    if -tolerance <= lower and upper <= tolerance:
        return WITHIN
    return OUTSIDE if lower > tolerance or upper < -tolerance else NOT_SHOWN
