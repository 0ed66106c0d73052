"""Metrics of confusion matrices: rows are gold labels, columns predicted ones, the last column abstentions.

All functions take a stack of matrices, stack x labels x (labels + 1), and return one value for each matrix,
NaN if undefined. With TP, FP and FN as usual, an abstention from an item of label g is

- excluded (``EXCLUDED``): not counted;
- wrong (``WRONG``): predicted as an extra label, so a false negative of g and no false positive;
- the worst case (``WORST_CASE``): predicted as the label that minimizes the metric. For metrics of one label
  that is a false negative if the item has the label and a false positive if not. A mean over labels is the
  mean of their worst cases.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import NDArray

from services.alignment.agreement.chance import beyond_chance
from services.alignment.bootstrap import Array

# Dinkelbach's method converges faster than linearly, and a few rounds are enough; this only bounds it.
_ROUNDS = 50
_STILL = 1e-12


class Confusions:
    """A stack of confusion matrices, read under one policy.

    Args:
        matrices: Stack x labels x (labels + 1), counts.
        policy: What an abstention counts as.
    """

    def __init__(self, matrices: Array, policy: AbstentionPolicy) -> None:
        self._policy = policy
        self._answered = matrices[:, :, :-1]
        excluded = policy is AbstentionPolicy.EXCLUDED
        self._abstained = np.zeros_like(matrices[:, :, -1]) if excluded else matrices[:, :, -1]
        self._hits: Array = np.diagonal(self._answered, axis1=1, axis2=2)
        self._gold: Array = self._answered.sum(axis=2) + self._abstained
        self._total: Array = self._gold.sum(axis=1)
        self._predicted: Array = self._answered.sum(axis=1)
        if policy is AbstentionPolicy.WORST_CASE:
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
        if labels > 1 and (labels == 2 or self._policy is AbstentionPolicy.WORST_CASE):
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
        if self._policy is AbstentionPolicy.WORST_CASE:
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


class AbstentionPolicy(Enum):
    """How abstentions count."""

    EXCLUDED = "left out"
    WRONG = "a wrong answer"
    WORST_CASE = "the worst possible answer"
