"""Judgements with their confidences, and the confidence threshold for a target accuracy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from services.alignment.bootstrap import Array, Index
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
    """Chooses a threshold on one half of the judgements, and reports it on the other.

    Args:
        judgements: In order; see ``ordered``.
        target: The accuracy to be reached.
        level: The level of the intervals.
        seed: Draws the halves.
        clustered: Whether a cluster may have several judgements.
    """
    first, second = _halves(judgements, seed)
    found = _lowest(first.where(first.usable), target)
    if found is None:
        reason = f"no confidence of the first half reaches an accuracy of {target:g}"
        if not first.usable.any():
            reason = "no answered item has a confidence"
        nothing = absent(reason)
        return Threshold(target, None, reason, nothing, nothing, nothing)
    kept = [half.where(half.usable & (half.confidence >= found)) for half in (first, second)]
    chosen, held_out = (accuracy(one, level, clustered=clustered) for one in kept)
    # The half that chooses the threshold is optimistic, so its interval does not cover.
    chosen = replace(chosen, lower=None, upper=None, interval_method="", withheld=SAME_ITEMS)
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


def _lowest(used: Judgements, target: float) -> float | None:
    """The lowest confidence such that the answers with at least it reach the accuracy."""
    levels, places = np.unique(-used.confidence, return_inverse=True)
    if not levels.size:
        return None
    right = np.cumsum(np.bincount(places, used.correct))
    count = np.cumsum(np.bincount(places))
    reached = np.flatnonzero(right >= target * count)
    return -float(levels[reached[-1]]) if reached.size else None


def _halves(judgements: Judgements, seed: int) -> tuple[Judgements, Judgements]:
    """A random split of the clusters into halves."""
    clusters, places = np.unique(judgements.cluster, return_inverse=True)
    drawn = np.random.default_rng(seed).permutation(clusters.size)[places]
    first = drawn < (clusters.size + 1) // 2
    return judgements.where(first), judgements.where(~first)
