"""Calibration of confidences, overall and by group, and confidence thresholds for abstaining."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from scipy import special

from dramaturg.api.alignment.v1 import calibration_pb2 as pb
from dramaturg.api.alignment.v1 import estimate_pb2
from services.alignment.bootstrap import Array, Bootstrapped, Index, Resampling, bootstrap, gather
from services.alignment.comparison.paired import log_capital
from services.alignment.errors import too_large
from services.alignment.estimates import (
    BIASED_RESAMPLES,
    SAME_ITEMS,
    Estimate,
    Scale,
    absent,
    clustered_proportion,
    proportion,
)
from services.alignment.regression import logistic


@dataclass(frozen=True)
class Judgements:
    """Judgements as parallel arrays."""

    confidence: Array
    """In [0, 1], NaN where there is none."""
    correct: Array
    """1 where right, 0 where wrong, NaN where there is no answer."""
    cluster: Index
    """The number of the cluster, by name; -1 for an item that is its own cluster."""

    def where(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Judgements:
        return self.at(np.flatnonzero(chosen))

    def at(self, places: Index) -> Judgements:
        return Judgements(self.confidence[places], self.correct[places], self.cluster[places])

    @property
    def usable(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Mask of the judgements with both an answer and a confidence."""
        usable: np.ndarray[tuple[int], np.dtype[np.bool_]] = ~(
            np.isnan(self.confidence) | np.isnan(self.correct)
        )
        return usable


def accuracy(used: Judgements, level: float, *, clustered: bool) -> Estimate:
    """The accuracy, with an interval that accounts for clusters."""
    if not clustered:
        hits, count = int(used.correct.sum()), used.correct.size
        return proportion(hits, count, level, undefined="no answer is kept")
    _, clusters = np.unique(used.cluster, return_inverse=True)
    hits_by_cluster = np.bincount(clusters, used.correct).astype(np.float64)
    sizes = np.bincount(clusters).astype(np.float64)
    return clustered_proportion(hits_by_cluster, sizes, level, undefined="no answer is kept")


def ordered(judgements: Judgements, group: Index) -> tuple[Judgements, Index]:
    """Sorts by cluster, confidence and answer, so that resamples do not depend on the order of items.

    Items without a cluster come first and get a number each.
    """
    order = np.lexsort((judgements.correct, judgements.confidence, group, judgements.cluster))
    cluster = judgements.cluster[order]
    alone = int((cluster < 0).sum())
    numbers = np.where(cluster < 0, np.arange(cluster.size), cluster + alone)
    return Judgements(judgements.confidence[order], judgements.correct[order], numbers), group[order]


def find_threshold(
    judgements: Judgements, target: float, level: float, seed: int, *, clustered: bool
) -> pb.AbstentionThreshold:
    """The lowest confidence from which on the answers are shown to reach an accuracy.

    One half of the judgements chooses the confidence to begin with. The other tests it and those below, in
    order, until one is not rejected (fixed-sequence testing, Angelopoulos et al. 2022, Learn then Test). The
    threshold misses the accuracy with a probability of at most one less the level. Answers are tested by the
    exact binomial bound, answers in clusters by a bet against the accuracy, which holds for every dependence
    within clusters.

    Args:
        judgements: In order; see ``ordered``.
        target: The accuracy to be reached.
        level: The level of the test, and of the interval of the coverage.
        seed: Draws the halves.
        clustered: Whether a cluster may have several judgements.
    """
    first, second = _halves(judgements, seed)
    test = _Accuracy(second.where(second.usable), target, 1 - level, clustered=clustered)
    found: float | None = None
    for confidence in _sequence(first.where(first.usable), target, 1 - level):
        if not test.reached_from(confidence):
            break
        found = confidence
    if found is None:
        reason = f"no confidence is shown to reach an accuracy of {target:g} by {test.count} answers"
        if not judgements.usable.any():
            reason = "no answered item has a confidence"
        nothing = absent(reason).encode()
        return pb.AbstentionThreshold(
            target_accuracy=target,
            undefined=reason,
            chosen_accuracy=nothing,
            held_out_accuracy=nothing,
            held_out_coverage=nothing,
        )
    kept = [half.where(half.usable & (half.confidence >= found)) for half in (first, second)]
    chosen, held_out = (
        replace(
            accuracy(one, level, clustered=clustered),
            lower=None,
            upper=None,
            interval_method="",
            withheld=SAME_ITEMS,
        )
        for one in kept
    )
    stays = (second.usable & (second.confidence >= found)).astype(np.float64)
    coverage = accuracy(Judgements(second.confidence, stays, second.cluster), level, clustered=clustered)
    return pb.AbstentionThreshold(
        target_accuracy=target,
        threshold=found,
        chosen_accuracy=chosen.of(first.confidence.size).encode(),
        held_out_accuracy=held_out.of(second.confidence.size).encode(),
        held_out_coverage=coverage.of(second.confidence.size).encode(),
    )


def _sequence(used: Judgements, target: float, error: float) -> Array:
    """The confidences to test, from the one whose answers exceed the accuracy most clearly downwards."""
    levels, places = np.unique(-used.confidence, return_inverse=True)
    if not levels.size:
        return levels
    right = np.cumsum(np.bincount(places, used.correct))
    count = np.cumsum(np.bincount(places))
    bounds = special.betaincinv(right, count - right + 1, error, where=right > 0, out=np.zeros(right.size))
    return -levels[int(np.argmax(bounds - target)) :]


class _Accuracy:
    """Tests whether the answers from a confidence on reach an accuracy."""

    def __init__(self, used: Judgements, target: float, error: float, *, clustered: bool) -> None:
        self._used, self._target, self._error, self._clustered = used, target, error, clustered
        self.count = used.correct.size
        _, self._codes = np.unique(used.cluster, return_inverse=True)

    def reached_from(self, confidence: float) -> bool:
        kept = self._used.confidence >= confidence
        right, count = self._used.correct[kept].sum(), int(kept.sum())
        if not self._clustered:
            return bool(
                right > 0 and special.betaincinv(right, count - right + 1, self._error) >= self._target
            )
        if not count or self._target <= 0:
            return count > 0
        _, codes = np.unique(self._codes[kept], return_inverse=True)
        losses = np.bincount(codes, 1 - self._used.correct[kept]).astype(np.float64)
        sizes = np.bincount(codes).astype(np.float64)
        capital = log_capital(-losses, sizes, float(sizes.max()), 1.0, self._target - 1)
        return capital >= -math.log(self._error)


def _halves(judgements: Judgements, seed: int) -> tuple[Judgements, Judgements]:
    """A random split of the clusters into halves."""
    clusters, places = np.unique(judgements.cluster, return_inverse=True)
    drawn = np.random.default_rng(seed).permutation(clusters.size)[places]
    first = drawn < (clusters.size + 1) // 2
    return judgements.where(first), judgements.where(~first)


PLATT = "platt"
ISOTONIC = "isotonic"
MAX_POINTS = 1000
"""The most points of a calibration map."""

Map = Callable[[Array], Array]
_FEWEST = 10
_EDGE = 1e-6
# The jackknife's intervals cover .84 to .95.
_DEPENDENT = "the map of each half depends on the items of the other"


def recalibrate(
    confidence: Array, correct: Array, cluster: Index, seed: int, bins: int, total: int
) -> list[pb.Recalibration]:
    """Recalibrates by both methods.

    The figures are those of held-out items: each half, clusters as wholes, gets the map that is fitted to the
    other.

    Args:
        confidence: The confidences, in [0, 1].
        correct: 1 where the answer is right, else 0.
        cluster: The number of each item's cluster; -1 for an item that is its own cluster.
        seed: The seed of the halves.
        bins: The number of bins of the expected calibration error.
        total: The number of items including those without a confidence or an answer.
    """
    return [
        _recalibrate(method, fit, confidence, correct, cluster, seed, bins, total)
        for method, fit in ((PLATT, fit_platt), (ISOTONIC, fit_isotonic))
    ]


def fit_platt(confidence: Array, correct: Array) -> Map | None:
    """A logistic regression of correctness on the log odds of the confidence (Platt 1999, with his targets).

    Returns:
        The map; ``None`` if all answers are right, or all wrong.
    """
    right = float(correct.sum())
    wrong = correct.size - right
    if not right or not wrong:
        return None
    design = np.stack([np.ones(confidence.size), _log_odds(confidence)], axis=1)
    if not np.ptp(design[:, 1]):
        return None
    # Targets off 0 and 1 keep the effects finite where confidence separates the halves.
    targets = np.where(correct > 0, (right + 1) / (right + 2), 1 / (wrong + 2))
    intercept, slope = logistic(design, targets, np.ones((1, confidence.size)))[0]
    if np.isnan(slope):
        return None
    return lambda values: special.expit(intercept + slope * _log_odds(values))


def fit_isotonic(confidence: Array, correct: Array) -> Map | None:
    """The least-squares increasing function of the confidence (Zadrozny and Elkan 2002)."""
    if not 0 < correct.sum() < correct.size:
        return None
    values, codes, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    means = np.bincount(codes, correct) / counts
    fitted = scipy.optimize.isotonic_regression(means, weights=counts).x
    return lambda wanted: np.interp(wanted, values, fitted)


def _recalibrate(
    method: str,
    fit: Callable[[Array, Array], Map | None],
    confidence: Array,
    correct: Array,
    cluster: Index,
    seed: int,
    bins: int,
    total: int,
) -> pb.Recalibration:
    count = confidence.size
    numbers = np.where(cluster < 0, np.arange(count) + int(cluster.max(initial=-1)) + 1, cluster)
    units, codes = np.unique(numbers, return_inverse=True)
    if units.size < _FEWEST:
        nothing = absent(f"{units.size} items or clusters are fewer than {_FEWEST}", count).of(total).encode()
        return pb.Recalibration(method=method, brier_score=nothing, expected_calibration_error=nothing)
    second = (np.random.default_rng(seed).permutation(units.size) % 2 == 1)[codes]
    moved = np.full(count, np.nan)
    for inside in (second, ~second):
        found = fit(confidence[~inside], correct[~inside])
        if found is not None:
            moved[inside] = found(confidence[inside])
    whole = fit(confidence, correct)
    if np.isnan(moved).any() or whole is None:
        reason = "in one half all answers are right, all are wrong, or all confidences are equal"
        nothing = absent(reason, count).of(total).encode()
        return pb.Recalibration(method=method, brier_score=nothing, expected_calibration_error=nothing)
    brier = Estimate(float(((moved - correct) ** 2).mean()), count, withheld=_DEPENDENT)
    places = np.minimum((moved * bins).astype(np.intp), bins - 1)
    gap = float(np.abs(np.bincount(places, moved - correct, bins)).sum() / count)
    values = np.unique(confidence)
    if values.size > MAX_POINTS:
        values = np.quantile(values, np.linspace(0, 1, MAX_POINTS))
    return pb.Recalibration(
        method=method,
        brier_score=brier.of(total).encode(),
        expected_calibration_error=Estimate(gap, count, withheld=BIASED_RESAMPLES).of(total).encode(),
        points=[
            pb.CalibrationPoint(confidence=before, recalibrated=after)
            for before, after in zip(values.tolist(), whole(values).tolist(), strict=True)
        ],
    )


def _log_odds(confidence: Array) -> Array:
    odds: Array = special.logit(np.clip(confidence, _EDGE, 1 - _EDGE))
    return odds


MAX_GROUPS = 2000
"""The most groups of one answer."""

_NONE = "no answered item has a confidence"
# The figures of a resample, in order.
_EXPECTED, _MAXIMUM, _BRIER, _MEAN, _AUC = range(5)


@dataclass(frozen=True)
class Design:
    bins: int
    equal_count: bool
    target: float | None
    clustered: bool
    resampling: Resampling
    recalibrated: bool = False


def calibrate(
    judgements: Judgements, groups: Sequence[str], group: Index, design: Design
) -> pb.MeasureCalibrationResponse:
    """Measures all judgements, then those of each group.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many groups.
    """
    if len(groups) > MAX_GROUPS:
        raise too_large("groups", limit=MAX_GROUPS, actual=len(groups))
    judgements, group = ordered(judgements, group)
    found = pb.MeasureCalibrationResponse(groups=[_measure("", judgements, design)])
    for code, name in enumerate(groups):
        design.resampling.checkpoint()
        found.groups.append(_measure(name, judgements.where(group == code), design))
    return found


def _measure(name: str, judgements: Judgements, design: Design) -> pb.CalibrationGroup:
    total = judgements.confidence.size
    used = judgements.where(judgements.usable)
    threshold = None
    if design.target is not None:
        level, seed = design.resampling.level, design.resampling.seed
        threshold = find_threshold(judgements, design.target, level, seed, clustered=design.clustered)
    if not used.confidence.size:
        nothing = absent(_NONE).of(total).encode()
        return pb.CalibrationGroup(
            group=name,
            item_count=total,
            expected_calibration_error=nothing,
            maximum_calibration_error=nothing,
            brier_score=nothing,
            discrimination=nothing,
            accuracy=nothing,
            mean_confidence=nothing,
            threshold=threshold,
        )
    places, count = _bins(used.confidence, design), used.confidence.size
    found = _bootstrap(used, places, design)

    def estimate(figure: int, undefined: str = "") -> estimate_pb2.Estimate:
        return found.estimate(figure, count, undefined, Scale.SHARE).of(total).encode()

    def gap(figure: int) -> estimate_pb2.Estimate:
        return Estimate(float(found.point[figure]), count, withheld=BIASED_RESAMPLES).of(total).encode()

    return pb.CalibrationGroup(
        group=name,
        item_count=total,
        bins=[_bin(used.where(places == place), design) for place in np.unique(places)],
        expected_calibration_error=gap(_EXPECTED),
        maximum_calibration_error=gap(_MAXIMUM),
        brier_score=estimate(_BRIER),
        discrimination=estimate(_AUC, "all answers are right, or all are wrong"),
        accuracy=accuracy(used, design.resampling.level, clustered=design.clustered).of(total).encode(),
        mean_confidence=estimate(_MEAN),
        threshold=threshold,
        recalibrations=_recalibrations(used, design, total) if design.recalibrated else (),
    )


def _recalibrations(used: Judgements, design: Design, total: int) -> list[pb.Recalibration]:
    design.resampling.checkpoint()
    cluster = used.cluster if design.clustered else np.full(used.cluster.size, -1)
    seed = design.resampling.seed
    return recalibrate(used.confidence, used.correct, cluster, seed, design.bins, total)


def _bootstrap(used: Judgements, places: Index, design: Design) -> Bootstrapped:
    """Draws clusters; where each judgement is its own cluster, equal ones are one row."""
    if design.clustered:
        _, clusters = np.unique(used.cluster, return_inverse=True)
        multiplicities = np.ones(int(clusters.max()) + 1, np.intp)
    else:
        pairs = np.stack([used.confidence, used.correct])
        _, first, multiplicities = np.unique(pairs, axis=1, return_index=True, return_counts=True)
        used, places, clusters = used.at(first), places[first], np.arange(first.size)
    statistic = _Statistic(used, places, clusters)
    return bootstrap(statistic, multiplicities, design.resampling, width=clusters.size)


class _Statistic:
    """The metrics as functions of bootstrap weights of clusters."""

    def __init__(self, used: Judgements, bins: Index, clusters: Index) -> None:
        self._confidence, self._correct, self._clusters = used.confidence, used.correct, clusters
        self._bins, self._bin_count = bins, int(bins.max()) + 1
        _, self._levels = np.unique(used.confidence, return_inverse=True)

    def __call__(self, weights: Array) -> Array:
        drawn = weights[:, self._clusters]
        total = drawn.sum(axis=1)
        gaps = drawn * (self._correct - self._confidence)
        by_bin = np.abs(gather(gaps, self._bins, self._bin_count))
        sizes = gather(drawn, self._bins, self._bin_count)
        shares = np.divide(by_bin, sizes, out=np.zeros_like(by_bin), where=sizes > 0)
        squares = drawn @ (self._correct - self._confidence) ** 2
        figures = (
            by_bin.sum(axis=1) / total,
            shares.max(axis=1),
            squares / total,
            drawn @ self._confidence / total,
            self._area(drawn),
        )
        return np.stack(figures, axis=1)

    def _area(self, drawn: Array) -> Array:
        """The area under the ROC curve: the share of ordered pairs, ties half (Hanley and McNeil 1982)."""
        levels = int(self._levels.max()) + 1
        right = gather(drawn * self._correct, self._levels, levels)
        wrong = gather(drawn * (1 - self._correct), self._levels, levels)
        below = np.cumsum(wrong, axis=1) - wrong / 2
        pairs = right.sum(axis=1) * wrong.sum(axis=1)
        area = np.full(pairs.shape, np.nan)
        np.divide((right * below).sum(axis=1), pairs, out=area, where=pairs > 0)
        return area


def _bins(confidence: Array, design: Design) -> Index:
    """The bin of each item, from 0; bins are closed above."""
    edges = np.linspace(0, 1, design.bins + 1)[1:-1]
    if design.equal_count:
        edges = np.unique(np.quantile(confidence, edges, method="inverted_cdf"))
    places: Index = np.searchsorted(edges, confidence, side="left")
    return places


def _bin(inside: Judgements, design: Design) -> pb.ReliabilityBin:
    confidence = inside.confidence
    return pb.ReliabilityBin(
        lower=float(confidence.min()),
        upper=float(confidence.max()),
        mean_confidence=float(confidence.mean()),
        accuracy=accuracy(inside, design.resampling.level, clustered=design.clustered).encode(),
    )
