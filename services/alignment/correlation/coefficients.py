"""Correlation coefficients as functions of bootstrap weights, and Williams' test.

All three are undefined where a column, or what a resample drew of it, is constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from services.alignment.bootstrap import Array, Index, Statistic, gather

MAX_DENSE_ROWS = 2048
"""The most different pairs of scores whose concordance is kept as a matrix, in 32 MiB."""

# Sums of squares keep about 16 digits, and columns are centred first.
_CONSTANT = 1e-12


class ScorePairs:
    """Two scores of each of some items, equal pairs together.

    Args:
        first: One score of each item, finite.
        second: The other, in the same order.
    """

    def __init__(self, first: Array, second: Array) -> None:
        pairs, self._row_of_item = np.unique(np.stack([first, second]), axis=1, return_inverse=True)
        self._rows = pairs.shape[1]
        self._columns = (pairs[0], pairs[1])
        self._groups = tuple(np.unique(column, return_inverse=True)[1] for column in self._columns)
        self._constant = any(int(groups.max()) == 0 for groups in self._groups)
        self._concordance: Array | None = None

    def pearson(self, weights: Array) -> Array:
        """Pearson's product-moment correlation, a figure for each row of weights over the items."""
        if self._constant:
            return np.full(weights.shape[0], np.nan)
        first, second = (_centred(column) for column in self._columns)
        gathered = self._gathered(weights)
        return _ratio(
            *(_moment(gathered, a, b) for a, b in ((first, second), (first, first), (second, second)))
        )

    def spearman(self, weights: Array) -> Array:
        """Spearman's rank correlation: Pearson's, of mid-ranks within each resample."""
        gathered = self._gathered(weights)
        first, second = (_ranks(gathered, groups) for groups in self._groups)
        weighted = gathered * first
        covariance, variance = (weighted * second).sum(axis=1), (weighted * first).sum(axis=1)
        return _ratio(
            (covariance, np.abs(covariance)),
            (variance, np.ones_like(variance)),
            ((gathered * second**2).sum(axis=1), np.ones_like(variance)),
        )

    def kendall(self, weights: Array) -> Array:
        """Kendall's tau-b (Kendall 1945, The treatment of ties in ranking problems).

        It is the sum of the signs' products over all pairs of items, over the root of how many pairs each
        column does not tie. With many different pairs of scores that sum comes from scipy's sort.
        """
        gathered = self._gathered(weights)
        if self._rows > MAX_DENSE_ROWS:
            return np.array([self._sorted_kendall(row) for row in gathered])
        if self._concordance is None:
            first, second = (_signs(groups) for groups in self._groups)
            self._concordance = first * second
        agreeing: Array = ((gathered @ self._concordance) * gathered).sum(axis=1)
        first, second = (_untied(gathered, groups) for groups in self._groups)
        tau = np.full_like(agreeing, np.nan)
        np.divide(agreeing, np.sqrt(first) * np.sqrt(second), out=tau, where=(first > 0) & (second > 0))
        return _clipped(tau)

    def _gathered(self, weights: Array) -> Array:
        return gather(weights, self._row_of_item, self._rows)

    def _sorted_kendall(self, weights: Array) -> float:
        drawn = np.repeat(np.arange(self._rows), weights.astype(np.intp))
        first, second = (groups[drawn] for groups in self._groups)
        return float(scipy.stats.kendalltau(first, second, method="asymptotic").statistic)


def each(*figures: Statistic) -> Statistic:
    """Combines statistics into one with a column each."""
    return lambda weights: np.stack([figure(weights) for figure in figures], axis=1)


def pearson(first: Array, second: Array) -> float:
    """Pearson's correlation of two columns; NaN where one is constant."""
    if first.min() == first.max() or second.min() == second.max():
        return float("nan")
    a, b = _centred(first), _centred(second)
    value = (a @ b) / np.sqrt(a @ a) / np.sqrt(b @ b)
    return float(np.clip(value, -1.0, 1.0))


def _centred(column: Array) -> Array:
    """Moved to mean 0 and scaled to reach 1, which leaves a correlation as it is."""
    centred: Array = column - column.mean()
    return centred / (float(np.abs(centred).max()) or 1.0)


def _moment(weights: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """The weighted sum of products of deviations, and that of the products as they are."""
    raw = weights @ (first * second)
    return raw - (weights @ first) * (weights @ second) / weights.sum(axis=1), raw


def _ratio(covariance: tuple[Array, Array], *variances: tuple[Array, Array]) -> Array:
    (first, first_raw), (second, second_raw) = variances
    value = np.full_like(first, np.nan)
    varied = (first > _CONSTANT * first_raw) & (second > _CONSTANT * second_raw)
    with np.errstate(invalid="ignore"):
        np.divide(covariance[0], np.sqrt(first) * np.sqrt(second), out=value, where=varied)
    return _clipped(value)


def _clipped(correlations: Array) -> Array:
    """Clips rounding errors beyond [-1, 1]."""
    clipped: Array = np.clip(correlations, -1.0, 1.0)
    return clipped


def _ranks(weights: Array, groups: Index) -> Array:
    """The mid-rank of each row in each resample, in (-1/2, 1/2), with mean 0."""
    drawn = gather(weights, groups, int(groups.max()) + 1)
    ranks = (np.cumsum(drawn, axis=1) - drawn / 2) / drawn.sum(axis=1, keepdims=True) - 0.5
    by_row: Array = ranks[:, groups]
    return by_row


def _signs(groups: Index) -> Array:
    signs: Array = np.sign(groups[:, np.newaxis] - groups).astype(np.float64)
    return signs


def _untied(weights: Array, groups: Index) -> Array:
    """The number of ordered pairs of items not tied in a column."""
    drawn = gather(weights, groups, int(groups.max()) + 1)
    untied: Array = weights.sum(axis=1) ** 2 - (drawn**2).sum(axis=1)
    return untied


@dataclass(frozen=True)
class Williams:
    t: float
    """Positive if the first measure correlates better."""
    p: float
    """The two-sided p-value, from Student's t with n - 3 degrees of freedom."""


def williams_test(r12: float, r13: float, r23: float, count: int) -> Williams | None:
    """Tests whether variable 1 (human scores) correlates better with variable 2 or with variable 3.

    Williams (1959), The comparison of regression variables, in the form of Steiger (1980, equation 7), as
    Graham and Baldwin (2014) propose it for metrics: on absolute correlations, so that measures for which
    lower is better are not penalized. A measure with a negative correlation with human scores is negated,
    which also negates its correlation with the other measure; the three remain correlations of one set of
    scores.

    Args:
        r12: The correlation of human scores with the first measure.
        r13: The correlation of human scores with the second measure.
        r23: The correlation of the measures.
        count: How many items the correlations rest on, at least 4.

    Returns:
        The result; ``None`` if the measures determine each other.
    """
    r23 *= math.copysign(1.0, r12) * math.copysign(1.0, r13)
    r12, r13 = abs(r12), abs(r13)
    # The determinant of the three correlations; rounding can take it a little below 0.
    determinant = max(0.0, 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23)
    mean = (r12 + r13) / 2
    variance = 2 * determinant * (count - 1) / (count - 3) + mean**2 * (1 - r23) ** 3
    if variance <= 1e-15:
        return None
    t = (r12 - r13) * math.sqrt((count - 1) * (1 + r23) / variance)
    return Williams(t, float(2 * scipy.stats.t.sf(abs(t), count - 3)))
