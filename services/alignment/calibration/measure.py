"""Calibration metrics, overall and by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from services.alignment.bootstrap import Array, Bootstrapped, Index, Resampling, bootstrap, gather
from services.alignment.calibration.judgements import Judgements, Threshold, accuracy, find_threshold, ordered
from services.alignment.calibration.recalibration import Recalibration, recalibrate
from services.alignment.errors import too_large
from services.alignment.estimates import BIASED_RESAMPLES, Estimate, absent
from services.alignment.jackknife import Scale

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


@dataclass(frozen=True)
class Bin:
    """A bin of the reliability diagram."""

    lower: float
    upper: float
    mean_confidence: float
    accuracy: Estimate


@dataclass(frozen=True)
class Calibration:
    """The metrics of one group; see ``CalibrationGroup`` in the contract."""

    group: str
    items: int
    bins: Sequence[Bin]
    expected_error: Estimate
    maximum_error: Estimate
    brier_score: Estimate
    discrimination: Estimate
    accuracy: Estimate
    mean_confidence: Estimate
    threshold: Threshold | None
    recalibrations: Sequence[Recalibration] = ()


def calibrate(
    judgements: Judgements, groups: Sequence[str], group: Index, design: Design
) -> list[Calibration]:
    """Measures all judgements, then those of each group.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many groups.
    """
    if len(groups) > MAX_GROUPS:
        raise too_large("groups", limit=MAX_GROUPS, actual=len(groups))
    judgements, group = ordered(judgements, group)
    found = [_measure("", judgements, design)]
    for code, name in enumerate(groups):
        design.resampling.checkpoint()
        found.append(_measure(name, judgements.where(group == code), design))
    return found


def _measure(name: str, judgements: Judgements, design: Design) -> Calibration:
    total = judgements.confidence.size
    used = judgements.where(judgements.usable)
    threshold = None
    if design.target is not None:
        level, seed = design.resampling.level, design.resampling.seed
        threshold = find_threshold(judgements, design.target, level, seed, clustered=design.clustered)
    if not used.confidence.size:
        nothing = absent(_NONE).of(total)
        return Calibration(name, total, [], nothing, nothing, nothing, nothing, nothing, nothing, threshold)
    places, count = _bins(used.confidence, design), used.confidence.size
    found = _bootstrap(used, places, design)

    def estimate(figure: int, undefined: str = "") -> Estimate:
        return found.estimate(figure, count, undefined, Scale.SHARE).of(total)

    def gap(figure: int) -> Estimate:
        return Estimate(float(found.point[figure]), count, withheld=BIASED_RESAMPLES).of(total)

    return Calibration(
        group=name,
        items=total,
        bins=[_bin(used.where(places == place), design) for place in np.unique(places)],
        expected_error=gap(_EXPECTED),
        maximum_error=gap(_MAXIMUM),
        brier_score=estimate(_BRIER),
        discrimination=estimate(_AUC, "all answers are right, or all are wrong"),
        accuracy=accuracy(used, design.resampling.level, clustered=design.clustered).of(total),
        mean_confidence=estimate(_MEAN),
        threshold=threshold,
        recalibrations=_recalibrations(used, design, total) if design.recalibrated else (),
    )


def _recalibrations(used: Judgements, design: Design, total: int) -> list[Recalibration]:
    design.resampling.checkpoint()
    cluster = used.cluster if design.clustered else np.full(used.cluster.size, -1)
    seed = design.resampling.seed
    return [
        replace(one, brier_score=one.brier_score.of(total), expected_error=one.expected_error.of(total))
        for one in recalibrate(used.confidence, used.correct, cluster, seed, design.bins)
    ]


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


def _bin(inside: Judgements, design: Design) -> Bin:
    confidence = inside.confidence
    return Bin(
        float(confidence.min()),
        float(confidence.max()),
        float(confidence.mean()),
        accuracy(inside, design.resampling.level, clustered=design.clustered),
    )
