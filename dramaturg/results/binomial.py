"""Exact bounds of a share, by Clopper and Pearson (1934), without scipy."""

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
