"""Prediction-powered inference for means (Angelopoulos, Duchi and Zrnic 2023, PPI++).

The mean of all predictions has the judge's bias. Labelled items estimate that bias, so the sum of both is
unbiased, and with many predictions its variance is that of the labels' residuals alone.

Items that were labelled with unequal probabilities count inversely to them (Hájek 1971; Zrnic and Candès
2024, active statistical inference), within strata (Fisch et al. 2024, stratified prediction-powered
inference).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from dramaturg.api.alignment.v1 import prediction_powered_pb2 as pb
from dramaturg.service.threads import Checkpoint
from services.alignment.bootstrap import Array, Index
from services.alignment.estimates import EQUAL, Estimate, absent, clustered_proportion, share_of_variance

PREDICTION_POWERED = "prediction-powered, student's t"
PREDICTION_POWERED_SHARE = "prediction-powered, wilson"
CLASSICAL = "student's t"
WEIGHTED = "weighted by inclusion probabilities, student's t"
WEIGHTED_SHARE = "weighted by inclusion probabilities, wilson"

_FEWEST = 2
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Predictions:
    """Predictions and labels of one system, or of a difference of two."""

    predicted: Array
    labels: Array
    """The human labels, NaN where there is none."""
    cluster: Index
    """The number of each item's cluster."""
    probability: Array | None = None
    """The probability with which each labelled item was drawn; ``None``: all had the same."""
    stratum: Index | None = None
    """The number of each item's stratum of the draw; ``None``: there is one. Read with probabilities."""

    def less(self, other: Predictions) -> Predictions:
        """The difference of each item, which has a label where both have one.

        Both were drawn independently, so the probability is the product.
        """
        probability = None
        if self.probability is not None and other.probability is not None:
            probability = self.probability * other.probability
        return Predictions(
            self.predicted - other.predicted, self.labels - other.labels, self.cluster, probability
        )


def estimate_means(
    systems: Mapping[str, Predictions],
    baseline: str,
    level: float,
    tuning_parameter: float | None,
    checkpoint: Checkpoint,
) -> pb.EstimateMeansResponse:
    """Estimates each system's mean and its difference from the baseline.

    Args:
        systems: The systems; arrays over the same items, with NaN for no prediction.
        baseline: The system to compare with; empty: none.
        level: The level of the intervals.
        tuning_parameter: The weight of the predictions; ``None``: that with the least variance.
        checkpoint: Called between systems.
    """
    found = pb.EstimateMeansResponse()
    for name in sorted(systems):
        checkpoint()
        own = systems[name]
        found.means.append(_mean(name, own, level, tuning_parameter))
        if baseline and name != baseline:
            found.differences.append(_mean(name, own.less(systems[baseline]), level, tuning_parameter))
    return found


def _mean(
    system: str, values: Predictions, level: float, tuning_parameter: float | None
) -> pb.PredictionPoweredMean:
    known = ~np.isnan(values.predicted)
    predicted, labels = values.predicted[known], values.labels[known]
    labelled = ~np.isnan(labels)
    count, total = int(labelled.sum()), predicted.size
    alone = absent("no item has a prediction")
    if total:
        alone = Estimate(float(predicted.mean()), total, withheld="it has the bias of the predictions")
    _, cluster = np.unique(values.cluster[known], return_inverse=True)
    units = np.unique(cluster[labelled]).size
    if units < _FEWEST:
        nothing = absent(f"{units} labelled items or clusters are fewer than {_FEWEST}", count)
        return _encode(system, nothing.of(total), nothing.of(total), alone)
    # Labels of 1 and 0 have a share, which lies in [0, 1] as its interval does.
    share = bool(np.isin(labels[labelled], (0.0, 1.0)).all() and ((predicted >= 0) & (predicted <= 1)).all())
    if values.probability is None:
        classical = _labels_alone(labels[labelled], cluster[labelled], level, share=share).of(total)
        if np.unique(cluster[~labelled]).size < _FEWEST:
            return _encode(system, classical, classical, alone, 0.0, float(count))
        parts = _Parts.of_a_sample(predicted, labels, cluster)
    else:
        stratum = np.zeros(total, int) if values.stratum is None else values.stratum[known]
        parts = _Parts.of_a_design(predicted, labels, cluster, values.probability[known], stratum)
        classical = parts.estimate(0.0, level, WEIGHTED_SHARE if share else WEIGHTED, share=share).of(total)
    weight = parts.best_weight() if tuning_parameter is None else tuning_parameter
    method = PREDICTION_POWERED_SHARE if share else PREDICTION_POWERED
    found = parts.estimate(weight, level, method, share=share).of(total)
    variance = parts.variance(weight)
    effective = parts.variance_of_one / variance if variance > 0 else None
    return _encode(system, found, classical, alone, weight, effective)


def _encode(
    system: str,
    found: Estimate,
    labels_alone: Estimate,
    predictions_alone: Estimate,
    weight: float | None = None,
    effective_labels: float | None = None,
) -> pb.PredictionPoweredMean:
    return pb.PredictionPoweredMean(
        system=system,
        prediction_powered=found.encode(),
        labels_alone=labels_alone.encode(),
        predictions_alone=predictions_alone.encode(),
        tuning_parameter=weight,
        effective_labels=effective_labels,
    )


@dataclass(frozen=True)
class _Parts:
    """An estimate that is linear in the weight of the predictions, with its deviations by cluster.

    With the weight w it is ``labels + w * predictions``; the variance is the sum of the squares of
    ``label_deviations + w * prediction_deviations``.
    """

    count: int
    units: float
    """The number of equal clusters of labels whose mean varies as that of these does (Kish 1965)."""
    freedom: float
    labels: float
    predictions: float
    label_deviations: Array
    prediction_deviations: Array
    variance_of_one: float
    """The variance of the mean of labels that are drawn uniformly, times their number."""

    @classmethod
    def of_a_sample(cls, predicted: Array, labels: Array, cluster: Index) -> _Parts:
        """Labelled items that are a random sample; the others have the predictions."""
        inside = ~np.isnan(labels)
        count, outside = int(inside.sum()), ~inside
        given = np.where(inside, labels, 0.0)
        each, other = inside / count, outside / int(outside.sum())
        units, others = (np.unique(cluster[some]).size for some in (inside, outside))
        equal = _equal_clusters(cluster[inside])
        scale, other_scale = (math.sqrt(one / (one - 1)) for one in (units, others))
        first, second, third = (
            float(a @ b) for a, b in ((each, given), (each, predicted), (other, predicted))
        )
        own = scale * each * (given - first)
        judged = other_scale * other * (predicted - third) - scale * each * (predicted - second)
        sums = _by_cluster(own, cluster)
        return cls(
            count,
            equal,
            max(1.0, equal - 1),
            first,
            third - second,
            sums,
            _by_cluster(judged, cluster),
            count * float(sums @ sums),
        )

    @classmethod
    def of_a_design(
        cls, predicted: Array, labels: Array, cluster: Index, probability: Array, stratum: Index
    ) -> _Parts:
        """Labelled items that were drawn with probabilities; all items have the predictions.

        The means of each stratum are weighted by its share of all items. With fewer than two labelled units
        in one of them there is one stratum: the probabilities alone correct for the draw.
        """
        inside, total = ~np.isnan(labels), predicted.size
        _, stratum = np.unique(stratum, return_inverse=True)
        units = _units(stratum[inside], cluster[inside], int(stratum.max()) + 1)
        if units.min() < _FEWEST:
            stratum = np.zeros(total, int)
            units = _units(stratum[inside], cluster[inside], 1)
        shares = np.bincount(stratum) / total
        inverse = np.where(inside, 1 / np.where(inside, probability, 1.0), 0.0)
        each = inverse * (shares / np.bincount(stratum, inverse))[stratum]
        scale = np.sqrt(units / (units - 1))[stratum]
        clusters = int(cluster.max()) + 1
        whole = math.sqrt(clusters / max(1, clusters - 1)) / total

        def deviations(values: Array) -> tuple[float, Array]:
            means = np.bincount(stratum, each * values) / shares
            mean = float(shares @ means)
            return mean, scale * each * (values - means[stratum]) + whole * (means[stratum] - mean)

        given = np.where(inside, labels, 0.0)
        (first, own), (second, rectified) = deviations(given), deviations(predicted)
        mean = float(predicted.mean())
        judged = whole * (predicted - mean) - rectified
        count = int(inside.sum())
        spread = float(each @ (given - first) ** 2) * count / (count - 1)
        equal = _equal_clusters(cluster[inside])
        freedom = max(1.0, equal - units.size)
        own, judged = _by_cluster(own, cluster), _by_cluster(judged, cluster)
        return cls(count, equal, freedom, first, mean - second, own, judged, spread)

    def best_weight(self) -> float:
        """The weight with the least variance, from 0 to 1 (PPI++, section 6, for means)."""
        variance = float(self.prediction_deviations @ self.prediction_deviations)
        # Predictions that are equal within each stratum deviate by rounding alone.
        if variance <= _ROUNDING * float(self.label_deviations @ self.label_deviations):
            return 0.0
        covariance = float(self.label_deviations @ self.prediction_deviations)
        return min(1.0, max(0.0, -covariance / variance))

    def variance(self, weight: float) -> float:
        """The variance of the estimate."""
        deviations = self.label_deviations + weight * self.prediction_deviations
        return float(deviations @ deviations)

    def estimate(self, weight: float, level: float, method: str, *, share: bool) -> Estimate:
        """The estimate with Student's interval, or Wilson's for a share.

        Few labels that all agree with their predictions do not show that there is no error. So the interval
        of a share is no shorter than where z^2 labels disagree, which is as far as Wilson's reaches for no
        error among them; z is the normal quantile. Items of a cluster count as alike.
        """
        value, variance = self.labels + weight * self.predictions, self.variance(weight)
        if share:
            least = (weight * float(special.ndtri(0.5 + level / 2))) ** 2 / (self.count * self.units)
            found = share_of_variance(
                value, self.units, max(variance, least), self.freedom, level, method=method
            )
            error = math.sqrt(variance) or None
            return replace(found, count=self.count, standard_error=error)
        return _interval(value, self.count, variance, self.freedom, level, method)


def _labels_alone(labels: Array, cluster: Index, level: float, *, share: bool) -> Estimate:
    _, codes = np.unique(cluster, return_inverse=True)
    sizes = np.bincount(codes).astype(np.float64)
    scale = sizes.size / (sizes.size - 1) / labels.size**2
    variance = float((np.bincount(codes, labels - labels.mean()) ** 2).sum()) * scale
    if share:
        found = clustered_proportion(_by_cluster(labels, codes), sizes, level, undefined="")
        return replace(found, standard_error=math.sqrt(variance) or None)
    return _interval(float(labels.mean()), labels.size, variance, sizes.size - 1, level, CLASSICAL)


def _equal_clusters(cluster: Index) -> float:
    _, codes = np.unique(cluster, return_inverse=True)
    sizes = np.bincount(codes).astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def _by_cluster(values: Array, cluster: Index) -> Array:
    return np.bincount(cluster, values).astype(np.float64)


def _units(stratum: Index, cluster: Index, strata: int) -> Index:
    """The number of clusters with items in each stratum."""
    pairs = np.unique(cluster * strata + stratum)
    return np.bincount(pairs % strata, minlength=strata)


def _interval(
    value: float, count: int, variance: float, freedom: float, level: float, method: str
) -> Estimate:
    if variance <= 0:
        return Estimate(value, count, withheld=EQUAL)
    error = math.sqrt(variance)
    reach = float(special.stdtrit(freedom, 0.5 + level / 2)) * error
    return Estimate(value, count, value - reach, value + reach, interval_method=method, standard_error=error)
