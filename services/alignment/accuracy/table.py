"""Confusion matrices of many items as the rows of one table, for the bootstrap."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from services.alignment.accuracy.confusion import AbstentionPolicy, Confusions
from services.alignment.bootstrap import Array, Index
from services.alignment.jackknife import Scale

SCALES = {
    "balanced_accuracy": Scale.SHARE,
    "macro_precision": Scale.SHARE,
    "macro_f1": Scale.SHARE,
    "mean_squared_error": Scale.POSITIVE,
    "macro_mse": Scale.POSITIVE,
    "cohen_kappa": Scale.CORRELATION,
}
"""The scale of each figure of a policy, in the order of computation; the F1 of each label follow."""
FIGURES = tuple(SCALES)

_TWO = 2
_Row = tuple[tuple[int, int], ...]
"""Which cells items are in, and how many are."""


@dataclass(frozen=True, order=True)
class Outcome:
    """The outcome of equal items."""

    gold: str
    predicted: str
    """Empty: an abstention."""
    macro: str
    """The value of the macro tag; the same for all where there is none."""
    cluster: str
    """Empty: each item is its own cluster."""


class Table:
    """One row for each kind of cluster, or of item; a cell for each macro value, right and predicted label.

    Args:
        outcomes: How many items there are of each kind.

    Attributes:
        labels: The labels that occur, by name.
        shape: Macro values, labels, labels and abstentions.
        cells: Rows x cells: how many items a cluster of the row has in each cell.
        multiplicities: How many clusters each row represents.
    """

    def __init__(self, outcomes: Mapping[Outcome, int]) -> None:
        self.labels = sorted({label for one in outcomes for label in (one.gold, one.predicted)} - {""})
        macros = sorted({one.macro for one in outcomes})
        self.shape = (len(macros), len(self.labels), len(self.labels) + 1)
        kinds = _kinds(outcomes, self.labels, macros)
        rows = sorted(kinds)
        self.multiplicities: Index = np.array([kinds[row] for row in rows], np.intp)
        self.cells = sparse.csr_array(
            (
                np.array([count for row in rows for _, count in row], np.float64),
                np.array([cell for row in rows for cell, _ in row], np.intp),
                np.cumsum([0, *(len(row) for row in rows)]),
            ),
            shape=(len(rows), math.prod(self.shape)),
        )
        self._squares = _squares(self.labels)

    @property
    def scaled(self) -> bool:
        """Whether labels are numeric, so that differences are defined."""
        return self._squares is not None

    @property
    def largest(self) -> float | None:
        """The largest squared difference of two labels; ``None`` where labels are not numeric."""
        return None if self._squares is None else float(self._squares.max())

    @property
    def unit(self) -> float | None:
        """The squared difference of the two labels; ``None`` where there are not two."""
        return self.largest if len(self.labels) == _TWO else None

    def statistic(self, weights: Array) -> Array:
        """The figures of each policy beside each other, for every row of weights."""
        matrices = (weights @ self.cells).reshape(-1, *self.shape)
        return np.concatenate([self._figures(matrices, policy) for policy in AbstentionPolicy], axis=1)

    def _figures(self, matrices: Array, policy: AbstentionPolicy) -> Array:
        read = Confusions(matrices.sum(axis=1), policy)
        squared = parts = np.full(matrices.shape[0], np.nan)
        if self._squares is not None:
            squared = read.mean_squared_error(self._squares)
            # All values of the macro tag in one stack.
            every = Confusions(matrices.reshape(-1, *self.shape[1:]), policy)
            parts = every.mean_squared_error(self._squares).reshape(-1, self.shape[0]).mean(axis=1)
        figures = (
            read.balanced_accuracy(),
            read.macro_precision(),
            read.macro_f1(),
            squared,
            parts,
            read.kappa(),
        )
        return np.concatenate([np.stack(figures, axis=1), read.f1()], axis=1)

    def rows(self, chosen: Array) -> Array:
        """How many items of each row are in the chosen cells.

        Args:
            chosen: Of the table's shape: 1 for those cells, 0 for others.
        """
        counts: Array = self.cells @ chosen.ravel()
        return counts

    def count(self, chosen: Array) -> int:
        """The number of items in the chosen cells."""
        return round(float(self.rows(chosen) @ self.multiplicities))

    def hits(self, *labels: int) -> Array:
        """The cells of correct answers of the given labels."""
        chosen = np.zeros(self.shape)
        chosen[:, labels, labels] = 1
        return chosen

    def gold(self, policy: AbstentionPolicy, *labels: int) -> Array:
        """The cells of the items that have one of some labels and count under a policy."""
        chosen = np.zeros(self.shape)
        chosen[:, labels, : -1 if policy is AbstentionPolicy.EXCLUDED else None] = 1
        return chosen

    def predicted(self, policy: AbstentionPolicy, label: int) -> Array:
        """The cells of the items that are predicted to have a label under a policy."""
        chosen = np.zeros(self.shape)
        chosen[:, :, label] = 1
        if policy is AbstentionPolicy.WORST_CASE:
            chosen[:, np.arange(len(self.labels)) != label, -1] = 1
        return chosen


def _kinds(outcomes: Mapping[Outcome, int], labels: Sequence[str], macros: Sequence[str]) -> Counter[_Row]:
    """The rows and their multiplicities."""
    label_codes = {label: code for code, label in enumerate(labels)} | {"": len(labels)}
    macro_codes = {macro: code for code, macro in enumerate(macros)}
    clusters: defaultdict[str, Counter[int]] = defaultdict(Counter)
    kinds: Counter[_Row] = Counter()
    for one, count in outcomes.items():
        place = macro_codes[one.macro] * len(labels) + label_codes[one.gold]
        cell = place * (len(labels) + 1) + label_codes[one.predicted]
        if one.cluster:
            clusters[one.cluster][cell] += count
        else:
            kinds[(cell, 1),] += count
    kinds.update(tuple(sorted(cells.items())) for cells in clusters.values())
    return kinds


def _squares(labels: Sequence[str]) -> Array | None:
    """The squared differences of labels: of numbers, or of two labels that are 0 and 1; else ``None``."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        numbers = [math.nan]
    if not all(math.isfinite(number) for number in numbers):
        if len(labels) > _TWO:
            return None
        numbers = [float(code) for code in range(len(labels))]
    values = np.array(numbers, np.float64)
    squares: Array = (values[:, np.newaxis] - values) ** 2
    return squares
