"""Metrics of confusion matrices, and the matrices of many items as the rows of one table.

Matrices: rows are gold labels, columns predicted ones, the last column abstentions.

All functions take a stack of matrices, stack x labels x (labels + 1), and return one value for each matrix,
NaN if undefined. With TP, FP and FN as usual, an abstention from an item of label g is

- excluded (``EXCLUDED``): not counted;
- wrong (``WRONG``): predicted as an extra label, so a false negative of g and no false positive;
- the worst case (``WORST_CASE``): predicted as the label that minimizes the metric. For metrics of one label
  that is a false negative if the item has the label and a false positive if not. A mean over labels is the
  mean of their worst cases.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dramaturg.api.alignment.v1 import accuracy_pb2 as pb
from services.alignment.agreement.coefficients import beyond_chance
from services.alignment.bootstrap import Array, Index
from services.alignment.estimates import Scale

# Dinkelbach's method converges faster than linearly, and a few rounds are enough; this only bounds it.
_ROUNDS = 50
_STILL = 1e-12


class Confusions:
    """A stack of confusion matrices, read under one policy.

    Args:
        matrices: Stack x labels x (labels + 1), counts.
        policy: What an abstention counts as.
    """

    def __init__(self, matrices: Array, policy: pb.AbstentionPolicy.ValueType) -> None:
        self._policy = policy
        self._answered = matrices[:, :, :-1]
        excluded = policy == pb.ABSTENTION_POLICY_EXCLUDED
        self._abstained = np.zeros_like(matrices[:, :, -1]) if excluded else matrices[:, :, -1]
        self._hits: Array = np.diagonal(self._answered, axis1=1, axis2=2)
        self._gold: Array = self._answered.sum(axis=2) + self._abstained
        self._total: Array = self._gold.sum(axis=1)
        self._predicted: Array = self._answered.sum(axis=1)
        if policy == pb.ABSTENTION_POLICY_WORST_CASE:
            # Abstentions from other labels' items, as false alarms.
            self._predicted = self._predicted + self._abstained.sum(axis=1, keepdims=True) - self._abstained

    def precision(self) -> Array:
        """Hits over predicted items, by label; undefined where none is predicted to have it."""
        return divide(self._hits, self._predicted)

    def recall(self) -> Array:
        """Hits over items that have the label; undefined where none has."""
        return divide(self._hits, self._gold)

    def f1(self) -> Array:
        """2 TP / (2 TP + FP + FN), by label; undefined where it occurs neither as right nor predicted."""
        return divide(2 * self._hits, self._gold + self._predicted)

    def balanced_accuracy(self) -> Array:
        """The mean recall of the labels that items have (Brodersen et al. 2010, for two labels)."""
        return _mean(self.recall(), self._gold > 0)

    def macro_precision(self) -> Array:
        """The mean precision of the labels that occur; undefined where one of them is never predicted."""
        return _mean(self.precision(), self._gold + self._predicted > 0)

    def macro_f1(self) -> Array:
        """The mean F1 of the labels that occur (Opitz and Burst 2019: the mean of F1s, not F1 of means)."""
        return _mean(self.f1(), self._gold + self._predicted > 0)

    def mean_squared_error(self, squares: Array) -> Array:
        """The mean squared difference of right and predicted labels.

        How far a wrong answer is from the right one is not said where there are more than two labels, so
        under ``WRONG`` it is undefined then, if there are abstentions.

        Args:
            squares: Labels x labels: the squared difference of each two.
        """
        errors: Array = self._answered.reshape(-1, squares.size) @ squares.ravel()
        labels = squares.shape[0]
        if labels > 1 and (labels == 2 or self._policy == pb.ABSTENTION_POLICY_WORST_CASE):
            errors = errors + self._abstained @ squares.max(axis=1)
        else:
            errors = np.where(self._abstained.sum(axis=1) > 0, np.nan, errors)
        return divide(errors, self._total)

    def kappa(self) -> Array:
        """Cohen's kappa of right and predicted labels (Cohen 1960); for the worst case ``_least_kappa``."""
        total = np.maximum(self._total, 1.0)
        observed = self._hits.sum(axis=1) / total
        gold = self._gold / total[:, np.newaxis]
        predicted = self._answered.sum(axis=1) / total[:, np.newaxis]
        kappa = beyond_chance(observed, (gold * predicted).sum(axis=1))[:, 0]
        if self._policy == pb.ABSTENTION_POLICY_WORST_CASE:
            kappa = _least_kappa(observed, gold, predicted, self._abstained / total[:, np.newaxis], kappa)
        found: Array = np.where(self._total > 0, kappa, np.nan)
        return found


def _least_kappa(observed: Array, gold: Array, predicted: Array, abstained: Array, start: Array) -> Array:
    """The least kappa that any answers in the abstentions' place would have given.

    The right labels are fixed, so observed and expected agreement are both linear in how many abstentions
    become which label. Kappa is least where all abstentions from one right label become one label, which
    Dinkelbach's method (1967, On nonlinear fractional programming) finds: at the value k, label l costs
    [l is right] + (k - 1) x (share of l among the right labels).

    Args:
        observed: The share of right answers.
        gold: The items that have each label, as a share of all.
        predicted: The items that are predicted to have it, as a share of all; none abstained from.
        abstained: The items that have it and are abstained from, as a share of all.
        start: A value that is not too small: kappa where no abstention is a label of the scale.
    """
    least = np.where(np.isnan(start), 1.0, start)
    right = np.eye(gold.shape[1])
    for _ in range(_ROUNDS):
        costs = right + ((least - 1)[:, np.newaxis] * gold)[:, np.newaxis, :]
        chosen = right[costs.argmin(axis=2)]
        filled = predicted + (abstained[:, :, np.newaxis] * chosen).sum(axis=1)
        agreed = observed + (abstained * np.diagonal(chosen, axis1=1, axis2=2)).sum(axis=1)
        found = beyond_chance(agreed, (gold * filled).sum(axis=1))[:, 0]
        better = found < least - _STILL
        if not better.any():
            break
        least = np.where(better, found, least)
    kappa: Array = np.where(np.isnan(start), np.nan, least)
    return kappa


def divide(numerator: Array, denominator: Array) -> Array:
    """Quotients, NaN where the denominator is 0."""
    quotient = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), np.nan)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    return quotient


def _mean(figures: Array, occurring: NDArray[np.bool_]) -> Array:
    """The mean of the figures of occurring labels; NaN where one of them is, or there are none."""
    return divide(np.where(occurring, figures, 0.0).sum(axis=1), occurring.sum(axis=1).astype(np.float64))


POLICIES = (pb.ABSTENTION_POLICY_EXCLUDED, pb.ABSTENTION_POLICY_WRONG, pb.ABSTENTION_POLICY_WORST_CASE)
"""How abstentions may count."""

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
        return np.concatenate([self._figures(matrices, policy) for policy in POLICIES], axis=1)

    def _figures(self, matrices: Array, policy: pb.AbstentionPolicy.ValueType) -> Array:
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

    def gold(self, policy: pb.AbstentionPolicy.ValueType, *labels: int) -> Array:
        """The cells of the items that have one of some labels and count under a policy."""
        chosen = np.zeros(self.shape)
        chosen[:, labels, : -1 if policy == pb.ABSTENTION_POLICY_EXCLUDED else None] = 1
        return chosen

    def predicted(self, policy: pb.AbstentionPolicy.ValueType, label: int) -> Array:
        """The cells of the items that are predicted to have a label under a policy."""
        chosen = np.zeros(self.shape)
        chosen[:, :, label] = 1
        if policy == pb.ABSTENTION_POLICY_WORST_CASE:
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
