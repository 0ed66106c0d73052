"""Exact bounds of a share, and equivalence tests of shares and of differences of shares, without scipy.

The tests are those of Schuirmann (1987), the bounds those of Clopper and Pearson (1934), which hold for every
number of cases.
"""

from __future__ import annotations

import math

_STEPS = 60
"""Halvings of [0, 1]: the bounds are exact to 1e-18."""


def upper_bound(hits: int, total: int, error: float) -> float:
    """The highest share p with P(X <= hits) >= error, for X binomial of ``total`` draws.

    The share of a population lies above it in at most ``error`` of all samples.

    Args:
        hits: The number of hits, 0 to ``total``.
        total: The number of draws, at least 0. 0: the bound is 1.
        error: The one-sided error, in (0, 1).
    """
    if hits >= total:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _at_most(hits, total, middle) >= error:
            low = middle
        else:
            high = middle
    return high


def lower_bound(hits: int, total: int, error: float) -> float:
    """The lowest share p with P(X >= hits) >= error (see ``upper_bound``)."""
    return 1.0 - upper_bound(total - hits, total, error)


def _at_most(hits: int, total: int, share: float) -> float:
    """P(X <= hits) of a binomial variable; ``share`` lies inside (0, 1)."""
    log_in, log_out = math.log(share), math.log1p(-share)
    return math.fsum(
        math.exp(
            math.lgamma(total + 1)
            - math.lgamma(count + 1)
            - math.lgamma(total - count + 1)
            + count * log_in
            + (total - count) * log_out
        )
        for count in range(hits + 1)
    )


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
