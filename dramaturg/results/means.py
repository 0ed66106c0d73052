"""Means with their intervals, of judgements in tables, leaderboards and reports; and their sums.

The quantiles of Student's t distribution are computed here: the client wheel does not depend on scipy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.names import reason_name


@dataclass(frozen=True)
class ModelSums:
    """Sums of one model's judgements by one measure.

    With n_i judgements and the sum y_i of their values in sample i, the interval of a ratio mean over samples
    of unequal size needs the number of samples and the sums of n_i, y_i, n_i^2, n_i y_i and y_i^2.
    """

    model: str
    measure: str
    judgements: int
    """All judgements, abstentions included."""
    judged: int
    """Judgements with a value: sum n_i."""
    samples: int
    """Samples with at least one value."""
    total: float
    """Sum y_i."""
    squared_counts: float
    """Sum n_i^2."""
    cross: float
    """Sum n_i y_i."""
    squared_totals: float
    """Sum y_i^2."""
    abstentions_by_reason: Mapping[str, int]


class SumAccumulator:
    """Adds up the judgements of one model by one measure, sample by sample."""

    def __init__(self) -> None:
        self.judgements = self.judged = self.samples = 0
        self.total = self.squared_counts = self.cross = self.squared_totals = 0.0
        self.abstentions: dict[str, int] = {}

    def add(self, rows: Sequence[RunResult]) -> None:
        """Adds the judgements of one sample."""
        self.judgements += len(rows)
        for row in rows:
            if row.abstain_reason:
                reason = reason_name(row.abstain_reason)
                self.abstentions[reason] = self.abstentions.get(reason, 0) + 1
        self.add_values([row.value for row in rows if row.HasField("value")])

    def add_values(self, values: Sequence[float]) -> None:
        """Adds the values of one sample."""
        if values:
            self.add_total(len(values), sum(values))

    def add_total(self, count: int, total: float) -> None:
        """Adds the number of values of one sample, at least 1, and their sum."""
        self.judged += count
        self.samples += 1
        self.total += total
        self.squared_counts += count * count
        self.cross += count * total
        self.squared_totals += total * total

    def mean(self) -> float | None:
        """The mean of the values; None without values."""
        return self.total / self.judged if self.judged else None

    def sums(self, model: str, measure: str) -> ModelSums:
        """The sums so far, under the given model and measure."""
        return ModelSums(
            model=model,
            measure=measure,
            judgements=self.judgements,
            judged=self.judged,
            samples=self.samples,
            total=self.total,
            squared_counts=self.squared_counts,
            cross=self.cross,
            squared_totals=self.squared_totals,
            abstentions_by_reason=dict(self.abstentions),
        )


_STEPS = 200
CONFIDENCE = 0.95
"""The level of the intervals."""
_ROUNDING = 1e-12
"""Deviations below this share of the sums are errors of rounding."""


_LARGEST_LOG_ODDS = 700.0
"""The exponential of more overflows."""
_LARGEST_GROWTH = 8.0
"""The inverse cube root moves an upper end to at most this multiple of the value: it has a pole."""


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
    mean between the ends of the scale, which covers near the ends too; with a lower end alone it is
    ``ends_above_zero`` of the distance from it; without ends on the values. With
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
        below, above = ends_above_zero(mean - lowest, margin)
        return Mean(sums.judged, mean, lowest + below, lowest + above)
    if not math.isfinite(width) or not lowest < mean < highest:
        return Mean(sums.judged, mean, max(lowest, mean - margin), min(highest, mean + margin))
    odds = (mean - lowest) / (highest - mean)
    reach = min(_LARGEST_LOG_ODDS, margin * width / (mean - lowest) / (highest - mean))
    lower, upper = (lowest + width / (1 + math.exp(sign * reach) / odds) for sign in (1, -1))
    return Mean(sums.judged, mean, lower, upper)


def ends_above_zero(value: float, margin: float) -> tuple[float, float]:
    """The interval of a positive value on a scale without an upper end.

    The lower end is on the logarithm, the upper end is the higher of those on the logarithm and on the
    inverse cube root. The inverse cube root makes the studentized mean of gamma values symmetric to the first
    order, the logarithm that of values whose skewness is 1.5 times their coefficient of variation. Few values
    do not tell which they are: on the logarithm alone the upper end is too low for long tails, on the inverse
    cube root alone the lower end is too high for rare values above 0.

    Args:
        value: The value, above 0.
        margin: Student's margin of the value.
    """
    reach = min(_LARGEST_LOG_ODDS, margin / value)
    growth = math.exp(reach)
    root = 1 - reach / 3
    steep = root**-3 if root > _LARGEST_GROWTH ** (-1 / 3) else _LARGEST_GROWTH
    return value / growth, value * max(growth, steep)


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


def estimate_of(
    mean: Mean, total: int, scale: tuple[float, float] = (0.0, 1.0), cluster: str = "sample"
) -> Estimate:
    """A mean as a message.

    Args:
        mean: The mean.
        total: How many values it would rest on without abstentions.
        scale: The lowest and the highest value.
        cluster: What the interval is clustered by.
    """
    estimate = Estimate(count=mean.n, total=total)
    if mean.value is None:
        estimate.undefined = "there are no values"
        return estimate
    estimate.value = mean.value
    if mean.lower is not None and mean.upper is not None:
        estimate.lower, estimate.upper = mean.lower, mean.upper
        transformation = "logit" if math.isfinite(scale[1]) else "logarithm, inverse cube root"
        method = "clopper-pearson" if mean.value in scale else f"student-t, {transformation}"
        estimate.interval_method = f"{method}, clustered by {cluster}"
    else:
        estimate.interval_withheld = f"there is one {cluster}, or the values do not differ"
    return estimate
