"""Prediction-powered inference for means (Angelopoulos, Duchi and Zrnic 2023, PPI++).

The mean of all predictions has the judge's bias. Labelled items estimate that bias, so the sum of both is
unbiased, and with many predictions its variance is that of the labels' residuals alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from services.alignment.bootstrap import Array, Index
from services.alignment.estimates import EQUAL, Estimate, absent, clustered_proportion, share_of_variance
from services.alignment.workers import Checkpoint

PREDICTION_POWERED = "prediction-powered, student's t"
PREDICTION_POWERED_SHARE = "prediction-powered, wilson"
CLASSICAL = "student's t"

_FEWEST = 2


@dataclass(frozen=True)
class Predictions:
    """Predictions and labels of one system, or of a difference of two."""

    predicted: Array
    labels: Array
    """The human labels, NaN where there is none."""
    cluster: Index
    """The number of each item's cluster."""


@dataclass(frozen=True)
class PredictionPoweredMean:
    """The three estimators; see ``PredictionPoweredMean`` in the contract."""

    system: str
    prediction_powered: Estimate
    labels_alone: Estimate
    predictions_alone: Estimate
    tuning_parameter: float | None = None
    effective_labels: float | None = None


@dataclass(frozen=True)
class Means:
    means: Sequence[PredictionPoweredMean]
    differences: Sequence[PredictionPoweredMean]


def estimate_means(
    systems: Mapping[str, Predictions],
    baseline: str,
    level: float,
    tuning_parameter: float | None,
    checkpoint: Checkpoint,
) -> Means:
    """Estimates each system's mean and its difference from the baseline.

    Args:
        systems: The systems; arrays over the same items, with NaN for no prediction.
        baseline: The system to compare with; empty: none.
        level: The level of the intervals.
        tuning_parameter: The weight of the predictions; ``None``: that with the least variance.
        checkpoint: Called between systems.
    """
    means: list[PredictionPoweredMean] = []
    differences: list[PredictionPoweredMean] = []
    for name in sorted(systems):
        checkpoint()
        own = systems[name]
        means.append(_mean(name, own, level, tuning_parameter))
        if baseline and name != baseline:
            other = systems[baseline]
            both = Predictions(own.predicted - other.predicted, own.labels - other.labels, own.cluster)
            differences.append(_mean(name, both, level, tuning_parameter))
    return Means(means, differences)


def _mean(
    system: str, values: Predictions, level: float, tuning_parameter: float | None
) -> PredictionPoweredMean:
    known = ~np.isnan(values.predicted)
    predicted, labels, cluster = values.predicted[known], values.labels[known], values.cluster[known]
    labelled = ~np.isnan(labels)
    count, total = int(labelled.sum()), predicted.size
    alone = absent("no item has a prediction")
    if total:
        alone = Estimate(float(predicted.mean()), total, withheld="it has the bias of the predictions")
    inside = _Part(labels[labelled], predicted[labelled], cluster[labelled])
    if inside.units < _FEWEST:
        nothing = absent(f"{inside.units} labelled items or clusters are fewer than {_FEWEST}", count)
        return PredictionPoweredMean(system, nothing.of(total), nothing.of(total), alone)
    outside = _Part(predicted[~labelled], predicted[~labelled], cluster[~labelled])
    # Labels of 1 and 0 have a share, which lies in [0, 1] as its interval does.
    share = bool(np.isin(inside.first, (0.0, 1.0)).all() and ((predicted >= 0) & (predicted <= 1)).all())
    classical = (inside.share(level) if share else inside.mean(level)).of(total)
    if outside.units < _FEWEST:
        return PredictionPoweredMean(system, classical, classical, alone, 0.0, float(count))
    weight = _tuning_parameter(inside, outside) if tuning_parameter is None else tuning_parameter
    residuals = inside.first - weight * inside.second
    variance = inside.variance(residuals) + outside.variance(weight * outside.first)
    value = float(residuals.mean() + weight * outside.first.mean())
    if share:
        found = share_of_variance(
            value, count, variance, inside.units - 1, level, method=PREDICTION_POWERED_SHARE
        )
    else:
        found = _interval(value, count, variance, inside.units, level, PREDICTION_POWERED)
    found = found.of(total)
    effective = count * inside.variance(inside.first) / variance if variance > 0 else None
    return PredictionPoweredMean(system, found, classical, alone, weight, effective)


class _Part:
    """Two values of some items, and the variance of means over their clusters."""

    def __init__(self, first: Array, second: Array, cluster: Index) -> None:
        self.first, self.second = first, second
        _, self._codes = np.unique(cluster, return_inverse=True)
        self.units = int(self._codes.max(initial=-1)) + 1

    def sums(self, values: Array) -> Array:
        """The sums of the deviations from the mean, by cluster."""
        sums: Array = np.bincount(self._codes, values - values.mean(), self.units).astype(np.float64)
        return sums

    def variance(self, values: Array) -> float:
        """The variance of the mean, from that between clusters."""
        return self.covariance(values, values)

    def share(self, level: float) -> Estimate:
        """The share of the first values that are 1."""
        hits = np.bincount(self._codes, self.first, self.units).astype(np.float64)
        sizes = np.bincount(self._codes, minlength=self.units).astype(np.float64)
        found = clustered_proportion(hits, sizes, level, undefined="")
        return replace(found, standard_error=math.sqrt(self.variance(self.first)) or None)

    def mean(self, level: float) -> Estimate:
        """The mean of the first values."""
        value, variance = float(self.first.mean()), self.variance(self.first)
        return _interval(value, self.first.size, variance, self.units, level, CLASSICAL)

    def covariance(self, one: Array, other: Array) -> float:
        """The covariance of two means."""
        scale = self.units / (self.units - 1) / one.size**2
        return float(self.sums(one) @ self.sums(other)) * scale


def _tuning_parameter(inside: _Part, outside: _Part) -> float:
    """The weight with the least variance of the sum, from 0 to 1 (PPI++, section 6, for means)."""
    variance = inside.variance(inside.second) + outside.variance(outside.first)
    if variance <= 0:
        return 0.0
    return min(1.0, max(0.0, inside.covariance(inside.first, inside.second) / variance))


def _interval(value: float, count: int, variance: float, units: int, level: float, method: str) -> Estimate:
    if variance <= 0:
        return Estimate(value, count, withheld=EQUAL)
    error = math.sqrt(variance)
    reach = float(special.stdtrit(units - 1, 0.5 + level / 2)) * error
    return Estimate(value, count, value - reach, value + reach, interval_method=method, standard_error=error)
