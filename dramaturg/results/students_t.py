"""Quantiles of Student's t distribution; the client wheel does not depend on scipy."""

from __future__ import annotations

import math
from statistics import NormalDist

_STEPS = 200


def quantile(probability: float, degrees: int) -> float:
    """The quantile function of Student's t distribution.

    Computed by bisection of the distribution function, which for whole degrees of freedom is a finite sum
    (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    Args:
        probability: In (0.5, 1).
        degrees: Degrees of freedom, at least 1. Above 1,000, the normal distribution with Fisher's first two
            correction terms is used (Abramowitz and Stegun, 26.7.5).

    Raises:
        ValueError: The probability or the degrees are out of range.
    """
    if not 0.5 < probability < 1 or degrees < 1:
        raise ValueError(
            f"probability must be in (0.5, 1) and degrees at least 1, not {probability} and {degrees}"
        )
    if degrees > 1000:
        z = NormalDist().inv_cdf(probability)
        return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    low, high = 0.0, 1.0
    while _distribution(high, degrees) < probability:
        high *= 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _distribution(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _distribution(t: float, degrees: int) -> float:
    """The distribution function at t, for t >= 0."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    if degrees % 2:
        term, total = cosine, 0.0
        for k in range(1, degrees - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = 2 / math.pi * (angle + sine * total)
    else:
        term, total = 1.0, 0.0
        for k in range(0, degrees - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = sine * total
    return 0.5 + inside / 2
