"""Judgements with their confidences, and the confidence threshold for a target accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from services.alignment.bootstrap import Array, Index
from services.alignment.comparison.bounded import log_capital
from services.alignment.estimates import SAME_ITEMS, Estimate, absent, clustered_proportion, proportion


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


@dataclass(frozen=True)
class Threshold:
    """A threshold for abstaining; see ``AbstentionThreshold`` in the contract."""

    target: float
    threshold: float | None
    undefined: str
    chosen_accuracy: Estimate
    held_out_accuracy: Estimate
    held_out_coverage: Estimate


def find_threshold(
    judgements: Judgements, target: float, level: float, seed: int, *, clustered: bool
) -> Threshold:
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
        nothing = absent(reason)
        return Threshold(target, None, reason, nothing, nothing, nothing)
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
    return Threshold(
        target,
        found,
        "",
        chosen.of(first.confidence.size),
        held_out.of(second.confidence.size),
        coverage.of(second.confidence.size),
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
