"""Means with their intervals: every mean of judgements in tables, leaderboards and reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dramaturg.results.students_t import quantile
from dramaturg.results.sums import ModelSums

CONFIDENCE = 0.95
"""The level of the intervals."""
_ROUNDING = 1e-12
"""Deviations below this share of the sums are errors of rounding."""


_LARGEST_LOG_ODDS = 700.0
"""The exponential of more overflows."""


class Mean(NamedTuple):
    """A mean of values."""

    n: int
    """The number of values."""
    value: float | None
    """The mean. None of no values."""
    lower: float | None
    """The lower end of the interval. None of fewer than two samples."""
    upper: float | None
    """The upper end of the interval."""


def mean_of_sums(sums: ModelSums, lowest: float, highest: float) -> Mean:
    """The mean of all judgements with a value, with an interval clustered by sample.

    The interval is that of a ratio of sums over samples, mean +- t * s, on the log odds of the place of the
    mean between the ends of the scale, which covers near the ends too; with a lower end alone on the
    logarithm of the distance from it; without ends on the values. With
    s^2 = K / (K - 1) * sum over samples of (y_i - mean * n_i)^2 / n^2: sample i has n_i judgements that sum
    to y_i, n is the sum of n_i, K the number of samples, and t has K - 1 degrees of freedom (Cochran 1977,
    Sampling Techniques, section 2.11; Miller 2024, arXiv:2411.00640, section 2.2). With one judgement a
    sample s is Student's standard error.

    Equal values have no variance. At an end of the scale the interval is that of Clopper and Pearson
    (Biometrika 26, 1934) for as many trials as samples, which holds for any distribution on the scale;
    elsewhere there is none.

    Args:
        sums: The sums over the samples.
        lowest: The lowest possible value. The interval does not reach beyond it.
        highest: The highest possible value.
    """
    if not sums.judged:
        return Mean(0, None, None, None)
    mean = sums.total / sums.judged
    clusters = sums.samples
    if clusters < 2:
        return Mean(sums.judged, mean, None, None)
    deviation = sums.squared_totals - 2 * mean * sums.cross + mean * mean * sums.squared_counts
    if deviation <= _ROUNDING * (sums.squared_totals + mean * mean * sums.squared_counts):
        return Mean(sums.judged, mean, *_bounds_of_equal(mean, clusters, lowest, highest))
    variance = clusters / (clusters - 1) * max(0.0, deviation) / sums.judged**2
    margin = quantile((1 + CONFIDENCE) / 2, clusters - 1) * math.sqrt(variance)
    width = highest - lowest
    if math.isfinite(lowest) and math.isinf(width) and mean > lowest:
        growth = math.exp(min(_LARGEST_LOG_ODDS, margin / (mean - lowest)))
        return Mean(sums.judged, mean, lowest + (mean - lowest) / growth, lowest + (mean - lowest) * growth)
    if not math.isfinite(width) or not lowest < mean < highest:
        return Mean(sums.judged, mean, max(lowest, mean - margin), min(highest, mean + margin))
    odds = (mean - lowest) / (highest - mean)
    reach = min(_LARGEST_LOG_ODDS, margin * width / (mean - lowest) / (highest - mean))
    lower, upper = (lowest + width / (1 + math.exp(sign * reach) / odds) for sign in (1, -1))
    return Mean(sums.judged, mean, lower, upper)


def _bounds_of_equal(
    mean: float, clusters: int, lowest: float, highest: float
) -> tuple[float | None, float | None]:
    """The interval of equal values."""
    reach = (highest - lowest) * (1 - ((1 - CONFIDENCE) / 2) ** (1 / clusters))
    if not math.isfinite(reach) or mean not in (lowest, highest):
        return None, None
    return (highest - reach, highest) if mean == highest else (lowest, lowest + reach)


def mean_of(values: Sequence[float], lowest: float, highest: float) -> Mean:
    """The mean of values, each of a sample of its own, with the interval of ``mean_of_sums``.

    Args:
        values: The values.
        lowest: The lowest possible value.
        highest: The highest possible value.
    """
    count, total = len(values), sum(values)
    return mean_of_sums(
        ModelSums(
            model="",
            measure="",
            judgements=count,
            judged=count,
            samples=count,
            total=total,
            squared_counts=count,
            cross=total,
            squared_totals=sum(value * value for value in values),
            abstentions_by_reason={},
        ),
        lowest,
        highest,
    )
