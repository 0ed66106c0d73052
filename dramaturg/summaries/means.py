"""Means with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

CONFIDENCE = 0.95
"""The level of the intervals."""

# Abramowitz and Stegun (1964), 26.7.5: coefficients of z, z^3, z^5, ... over the divisor, for each 1 / df^k.
_CORNISH_FISHER: tuple[tuple[tuple[int, ...], int], ...] = (
    ((1, 1), 4),
    ((3, 16, 5), 96),
    ((-15, 17, 19, 3), 384),
    ((-945, -1920, 1482, 776, 79), 92160),
)


class Mean(NamedTuple):
    """A mean of values."""

    n: int
    """How many values it rests on."""
    value: float | None
    """The mean. None of no values."""
    lower: float | None
    """The lower end of the interval. None of fewer than two values."""
    upper: float | None
    """The upper end of the interval."""


def mean_of(values: Sequence[float], lowest: float, highest: float) -> Mean:
    """The mean with Student's interval, cut at the ends of the scale.

    Args:
        values: The values.
        lowest: The lowest possible value.
        highest: The highest possible value.
    """
    count = len(values)
    if not count:
        return Mean(0, None, None, None)
    mean = fmean(values)
    if count == 1:
        return Mean(1, mean, None, None)
    half = student_quantile((1 + CONFIDENCE) / 2, count - 1) * stdev(values) / math.sqrt(count)
    return Mean(count, mean, max(lowest, mean - half), min(highest, mean + half))


def student_quantile(probability: float, degrees: int) -> float:
    """A quantile of Student's t: exact for one and two degrees, else to about 0.1 % (A&S 26.7.5).

    Args:
        probability: In (0, 1).
        degrees: The degrees of freedom, from 1.
    """
    if degrees == 1:
        return math.tan(math.pi * (probability - 0.5))
    if degrees == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    z = NormalDist().inv_cdf(probability)
    terms = (
        sum(factor * z ** (2 * power + 1) for power, factor in enumerate(factors)) / divisor / degrees**order
        for order, (factors, divisor) in enumerate(_CORNISH_FISHER, start=1)
    )
    return float(z + sum(terms))
