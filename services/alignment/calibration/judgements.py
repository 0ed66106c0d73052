"""Judgements with their confidences, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.alignment.bootstrap import Array, Index
from services.alignment.estimates import Estimate, clustered_proportion, proportion


@dataclass(frozen=True)
class Judgements:
    """Some judgements, an element each."""

    confidence: Array
    """In [0, 1], NaN where there is none."""
    correct: Array
    """1 where right, 0 where wrong, NaN where there is no answer."""
    cluster: Index
    """The number of the cluster, by name; -1 for an item that stands alone."""

    def where(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Judgements:
        """Some of them."""
        return self.at(np.flatnonzero(chosen))

    def at(self, places: Index) -> Judgements:
        """Those at some places."""
        return Judgements(self.confidence[places], self.correct[places], self.cluster[places])

    @property
    def usable(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which have both an answer and a confidence."""
        usable: np.ndarray[tuple[int], np.dtype[np.bool_]] = ~(
            np.isnan(self.confidence) | np.isnan(self.correct)
        )
        return usable


def accuracy(used: Judgements, level: float, *, clustered: bool) -> Estimate:
    """The share of right answers, with an interval that takes clusters as what they are worth."""
    if not clustered:
        hits, count = int(used.correct.sum()), used.correct.size
        return proportion(hits, count, level, undefined="no answer is kept")
    _, clusters = np.unique(used.cluster, return_inverse=True)
    hits_by_cluster = np.bincount(clusters, used.correct).astype(np.float64)
    sizes = np.bincount(clusters).astype(np.float64)
    return clustered_proportion(hits_by_cluster, sizes, level, undefined="no answer is kept")


def ordered(judgements: Judgements, group: Index) -> tuple[Judgements, Index]:
    """By cluster, confidence and answer, so that items draw alike whatever order they come in.

    Those that stand alone come first, and get a number each.
    """
    order = np.lexsort((judgements.correct, judgements.confidence, group, judgements.cluster))
    cluster = judgements.cluster[order]
    alone = int((cluster < 0).sum())
    numbers = np.where(cluster < 0, np.arange(cluster.size), cluster + alone)
    return Judgements(judgements.confidence[order], judgements.correct[order], numbers), group[order]
