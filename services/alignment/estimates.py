"""Estimates with confidence intervals, those from the jackknife, and p-values adjusted for their number.

Percentiles of the bootstrap cover too little where items are few or wrong answers rare: with 20 items .61 to
.92 at .95, with ten clusters .71 to .94. The jackknife's standard error with Student's quantile, on a scale
without ends, covers .93 to .98 (tests/services/alignment/test_estimates_coverage.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dramaturg.api.alignment.v1 import estimate_pb2
from dramaturg.results.means import ends_above_zero

Array = NDArray[np.float64]

WILSON = "wilson"
CLUSTERED_WILSON = "wilson, with the effective sample size of the clusters"
MOVER = "mover, of wilson"
PERCENTILE = "bootstrap-percentile"

ONE_CLUSTER = "there is one item or cluster"
"""The reasons why a value has no interval."""
EQUAL = "the values do not differ"
SAME_ITEMS = "it is chosen and measured on the same items"
BIASED_RESAMPLES = "its resamples are biased, so no interval of theirs covers"

# Bounds that differ by less are equal.
_ROUNDING = 1e-12
# With fewer of the resamples defined, the interval would describe a selection of them.
_LEAST_DEFINED = 0.9
# One cluster says nothing of how much they differ.
_FEWEST_CLUSTERS = 2


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval, or the reason why it is undefined; never both, never NaN."""

    value: float | None
    """The value; ``None`` if undefined."""
    count: int
    """The number of items used."""
    lower: float | None = None
    """The lower end of the interval."""
    upper: float | None = None
    """The upper end of the interval."""
    undefined: str = ""
    """The reason why there is no value; empty otherwise."""
    interval_method: str = ""
    """The method of the interval; empty without one."""
    total: int | None = None
    """The number of items including excluded ones; ``None``: coverage does not apply."""
    standard_error: float | None = None
    """Of means and their differences."""
    withheld: str = ""
    """Why there is a value but no interval; empty where there is one, or none is asked for."""

    def of(self, total: int) -> Estimate:
        """A copy with coverage: the estimate uses ``count`` of ``total`` items."""
        return replace(self, total=total)

    def encode(self) -> estimate_pb2.Estimate:
        """The message of the contract."""
        return estimate_pb2.Estimate(
            value=self.value,
            lower=self.lower,
            upper=self.upper,
            count=self.count,
            undefined=self.undefined,
            interval_method=self.interval_method,
            total=self.total or 0,
            standard_error=self.standard_error,
            interval_withheld=self.withheld,
        )


def absent(reason: str, count: int = 0) -> Estimate:
    """An undefined estimate with its reason."""
    return Estimate(None, count, undefined=reason)


def proportion(hits: int, count: int, level: float, *, undefined: str) -> Estimate:
    """A proportion with Wilson's score interval (Wilson 1927, the formula for p'; no continuity correction).

    Unlike the normal approximation it stays within [0, 1] and is defined for 0 of n and n of n.

    Args:
        hits: The number of hits, from 0 to ``count``.
        count: The number of items.
        level: The level of the interval, e.g. 0.95.
        undefined: The reason to give where there are no items.
    """
    if not count:
        return absent(undefined)
    lower, upper = _wilson(hits / count, count, float(special.ndtri(0.5 + level / 2)))
    return Estimate(hits / count, count, lower, upper, interval_method=WILSON)


def clustered_proportion(
    hits: NDArray[np.float64], sizes: NDArray[np.float64], level: float, *, undefined: str
) -> Estimate:
    """A proportion of clustered items, with Wilson's interval for the effective sample size.

    The variance between clusters, as that of a ratio (Cochran 1977, Sampling Techniques, chapter 6), over the
    variance of independent items is the design effect (Kish 1965). The effective sample size is the number of
    items divided by it, at most the number of items, and Student's quantile takes the place of the normal one
    (Dean and Pagano 2015). Its degrees of freedom are one less than the number of equal clusters whose
    variance varies as that of these does (Satterthwaite 1946), where the items of a cluster are as similar as
    the design effect says: of large clusters among small ones few count. Clusters of one item each are items.

    Args:
        hits: How many of each cluster's items count.
        sizes: How many items each cluster has; clusters without any do not matter.
        level: The level of the interval.
        undefined: The reason to give where there are no items.
    """
    hits, sizes = hits[sizes > 0], sizes[sizes > 0]
    clusters, count = sizes.size, int(sizes.sum())
    if not count:
        return absent(undefined)
    share = float(hits.sum() / count)
    if clusters == count:
        return proportion(int(hits.sum()), count, level, undefined=undefined)
    if clusters < _FEWEST_CLUSTERS:
        return Estimate(share, count, withheld=ONE_CLUSTER)
    independent = share * (1 - share) / count
    between = clusters / (clusters - 1) * float(((hits - share * sizes) ** 2).sum()) / count**2
    # If all items are hits, or none is, the similarity within clusters cannot be estimated.
    effect = between / independent if independent > 0 else count / clusters
    similarity = min(1.0, max(0.0, (effect - 1) * count / float((sizes * (sizes - 1)).sum())))
    variances = sizes * (1 + (sizes - 1) * similarity)
    freedom = float(variances.sum() ** 2 / (variances**2).sum()) - 1
    quantile = float(special.stdtrit(max(1.0, freedom), 0.5 + level / 2))
    lower, upper = _wilson(share, count / max(1.0, effect), quantile)
    return Estimate(share, count, lower, upper, interval_method=CLUSTERED_WILSON)


def share_of_variance(
    value: float, count: float, variance: float, freedom: float, level: float, *, method: str
) -> Estimate:
    """A share that is estimated with a variance, with Wilson's interval for the items that it is worth.

    Their number is ``value * (1 - value) / variance``, as for clusters. The interval is within [0, 1]. An
    estimate outside of it is moved to the end.

    Args:
        value: The estimate.
        count: The number of independent items used.
        variance: The variance of the estimate. Where it is 0, the items count as they are.
        freedom: The degrees of freedom of the variance.
        level: The level of the interval.
        method: The name of the interval.
    """
    share = min(1.0, max(0.0, value))
    error = math.sqrt(variance) or None
    independent = share * (1 - share)
    worth = independent / variance if independent > 0 and variance > 0 else count
    lower, upper = _wilson(share, worth, float(special.stdtrit(freedom, 0.5 + level / 2)))
    return Estimate(share, round(count), lower, upper, interval_method=method, standard_error=error)


def mean_of_independent(figures: Sequence[Estimate]) -> Estimate:
    """The mean of independent estimates, with an interval from theirs (Zou and Donner 2008, MOVER).

    The distance of each end from the mean is the root of the sum of the squared distances of their ends, over
    their number.

    Args:
        figures: At least one, all with a value; without an interval where one of them has none.
    """
    values = [one.value for one in figures if one.value is not None]
    count = sum(one.count for one in figures)
    mean = math.fsum(values) / len(values)
    below = [value - one.lower for value, one in zip(values, figures, strict=True) if one.lower is not None]
    above = [one.upper - value for value, one in zip(values, figures, strict=True) if one.upper is not None]
    if len(below) < len(values) or len(above) < len(values):
        return Estimate(mean, count, withheld="one of the parts has none")
    lower, upper = mean - math.hypot(*below) / len(values), mean + math.hypot(*above) / len(values)
    return Estimate(mean, count, lower, upper, interval_method=MOVER)


def _wilson(share: float, count: float, z: float) -> tuple[float, float]:
    shrink = 1 + z * z / count
    centre = (share + z * z / (2 * count)) / shrink
    margin = z / shrink * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    lower = 0.0 if share == 0 else max(0.0, centre - margin)
    upper = 1.0 if share == 1 else min(1.0, centre + margin)
    return lower, upper


def with_percentiles(value: float, count: int, replicates: NDArray[np.float64], level: float) -> Estimate:
    """A value with the percentile interval of its replicates (Efron and Tibshirani 1993, chapter 13).

    A resample may leave the value undefined, e.g. if it has only one label. If more than a tenth of the
    resamples do, there is no interval; otherwise the method reports the number of defined ones. If the bounds
    are equal, e.g. with a single cluster or without any disagreement, there is no interval either: the
    resamples contain no information about the variance.

    Args:
        value: The value.
        count: The number of items used.
        replicates: The value of each resample, NaN if undefined; of any length.
        level: The level of the interval, e.g. 0.95.
    """
    defined = replicates[~np.isnan(replicates)]
    if not defined.size or defined.size < _LEAST_DEFINED * replicates.size:
        reason = f"only {defined.size} of {replicates.size} resamples are defined"
        return Estimate(value, count, withheld=reason)
    tail = (1 - level) / 2
    lower, upper = np.quantile(defined, [tail, 1 - tail])
    if upper - lower <= _ROUNDING * max(1.0, abs(value)):
        return Estimate(value, count, withheld="its resamples do not differ")
    method = PERCENTILE
    if defined.size < replicates.size:
        method = f"{PERCENTILE} ({defined.size} of {replicates.size} resamples are defined)"
    return Estimate(value, count, float(lower), float(upper), interval_method=method)


_FEWEST_UNITS = 2
_JACKKNIFE_ROUNDING = 1e-9


class Scale(Enum):
    """The range of a figure, and the transformation under which its interval is symmetric."""

    CORRELATION = "fisher z"
    """From -1 to 1: Fisher's z (1921)."""
    SHARE = "logit"
    """From 0 to 1: log odds."""
    POSITIVE = "log, inverse cube root"
    """From 0: both, see ``ends_above_zero``."""
    REAL = ""
    """Without ends: none."""


@dataclass(frozen=True)
class _Transformation:
    forward: Callable[[float], float]
    backward: Callable[[float], float]
    slope: Callable[[float], float]


_TRANSFORMATIONS = {
    Scale.CORRELATION: _Transformation(math.atanh, math.tanh, lambda value: 1 / (1 - value**2)),
    Scale.SHARE: _Transformation(
        lambda value: float(special.logit(value)),
        lambda value: float(special.expit(value)),
        lambda value: 1 / (value * (1 - value)),
    ),
}
_ENDS = {Scale.CORRELATION: (-1.0, 1.0), Scale.SHARE: (0.0, 1.0), Scale.POSITIVE: (0.0, math.inf)}


def pseudo_values(value: float | Array, deleted: Array, units: int) -> Array:
    """The pseudo-values of a statistic (Tukey 1958).

    Args:
        value: The statistic of all units.
        deleted: The statistic without each unit.
        units: The number of units.
    """
    values: Array = units * value - (units - 1) * deleted
    return values


def with_jackknife(
    value: float,
    count: int,
    pseudo: Array,
    level: float,
    scale: Scale = Scale.REAL,
    *,
    multiplicities: Array | None = None,
) -> Estimate:
    """A value with Student's interval of its pseudo-values, on the scale of the figure.

    There is no interval if a pseudo-value is undefined or all are equal, if there is one unit, or if the
    value is at an end of its scale: nothing is seen of how much units vary.

    Args:
        value: The value.
        count: The number of items used.
        pseudo: The pseudo-values of the units: items, or clusters.
        level: The level of the interval.
        scale: The scale of the figure.
        multiplicities: The number of units with each pseudo-value. Default: 1 each.
    """
    weights = np.ones_like(pseudo) if multiplicities is None else multiplicities.astype(np.float64)
    units = float(weights.sum())
    if units < _FEWEST_UNITS:
        return Estimate(value, count, withheld=ONE_CLUSTER)
    if np.isnan(pseudo).any():
        return Estimate(value, count, withheld="it is undefined without one of the items or clusters")
    mean = float(weights @ pseudo) / units
    error = math.sqrt(float(weights @ (pseudo - mean) ** 2) / (units - 1) / units)
    if error <= _JACKKNIFE_ROUNDING * max(abs(value), 1e-3):
        return Estimate(value, count, withheld=EQUAL)
    low, high = _ENDS.get(scale, (-math.inf, math.inf))
    if not low < value < high or min(value - low, high - value) < _JACKKNIFE_ROUNDING:
        return Estimate(value, count, withheld="it is at an end of its scale")
    lower, upper = _ends(value, float(special.stdtrit(units - 1, 0.5 + level / 2)) * error, scale)
    name = f"jackknife, student's t{f', {scale.value}' if scale.value else ''}"
    return Estimate(value, count, lower, upper, interval_method=name, standard_error=error)


def _ends(value: float, margin: float, scale: Scale) -> tuple[float, float]:
    if scale is Scale.REAL:
        return value - margin, value + margin
    if scale is Scale.POSITIVE:
        return ends_above_zero(value, margin)
    transformation = _TRANSFORMATIONS[scale]
    reach, centre = margin * transformation.slope(value), transformation.forward(value)
    # exp overflows far beyond any figure.
    lower, upper = (max(-700.0, min(700.0, centre + sign * reach)) for sign in (-1, 1))
    return transformation.backward(lower), transformation.backward(upper)


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
