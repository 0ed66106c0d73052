"""Correlation coefficients as functions of bootstrap weights, Williams' test, and the influence of each item.

All are undefined where a column, or what a resample drew of it, is constant.

The influence functions of Pearson's, Spearman's and Kendall's correlation give the infinitesimal jackknife
(Jaeckel 1972; Efron 1982, chapter 6): the standard error from one pass over the items instead of thousands of
resamples. Everything is O(n log n).
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


def influences(first: Array, second: Array) -> tuple[Array, Array]:
    """The three correlations and the influence of each item on them.

    Args:
        first: One score of each item, not constant.
        second: The other, not constant.

    Returns:
        Pearson's r, Spearman's rho and Kendall's tau-b; and items x 3, each column with mean 0.
    """
    found = [_pearson(first, second), _spearman(first, second), _kendall(first, second)]
    return np.array([value for value, _ in found]), np.stack([values for _, values in found], axis=1)


def _pearson(first: Array, second: Array) -> tuple[float, Array]:
    x, y = ((column - column.mean()) / column.std() for column in (first, second))
    value = max(-1.0, min(1.0, float((x * y).mean())))
    return value, x * y - value * (x**2 + y**2) / 2


def _spearman(first: Array, second: Array) -> tuple[float, Array]:
    x, y = _Column(first), _Column(second)
    covariance = float((x.rank * y.rank).mean())
    variances = [float((column.rank**2).mean()) for column in (x, y)]
    # Ranks are means over the other items, so an item moves all ranks above its own.
    joint = x.rank * y.rank + x.moved(y.rank) + y.moved(x.rank) - 3 * covariance
    alone = [
        column.rank**2 + 2 * column.moved(column.rank) - 3 * variance
        for column, variance in zip((x, y), variances, strict=True)
    ]
    return _quotient(covariance, joint, variances, alone)


def _kendall(first: Array, second: Array) -> tuple[float, Array]:
    x, y, count = _Column(first), _Column(second), first.size
    ends = x.below + x.tied
    prefixes = np.concatenate([x.below, x.below, ends, ends])
    bounds = np.concatenate([y.code, y.code + 1, y.code + 1, y.code])
    below, below_or_tied, within, within_below = dominated(prefixes, x.code, y.code, bounds).reshape(4, -1)
    above_x, above_y = count - x.below - x.tied, count - y.below - y.tied
    concordant = below + (count - (x.below + x.tied) - (y.below + y.tied) + within)
    discordant = (x.below - below_or_tied) + (y.below - within_below)
    sign = (concordant - discordant) / count
    untied = [(column.below + above) / count for column, above in ((x, above_x), (y, above_y))]
    value, pairs = float(sign.mean()), [float(part.mean()) for part in untied]
    return _quotient(
        value,
        2 * (sign - value),
        pairs,
        [2 * (part - mean) for part, mean in zip(untied, pairs, strict=True)],
    )


def _quotient(top: float, on_top: Array, below: list[float], on_below: list[Array]) -> tuple[float, Array]:
    """A quotient by the root of a product, and its influence by the chain rule."""
    root = float(np.sqrt(below[0]) * np.sqrt(below[1]))
    value = max(-1.0, min(1.0, top / root))
    relative = sum((values / one for values, one in zip(on_below, below, strict=True)), np.zeros_like(on_top))
    return value, on_top / root - value * relative / 2


class _Column:
    def __init__(self, values: Array) -> None:
        _, self.code, sizes = np.unique(values, return_inverse=True, return_counts=True)
        self.tied: Index = sizes[self.code]
        """The number of items with the same score, the item included."""
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self.below: Index = self._starts[self.code]
        """The number of items with a lower score."""
        self.rank: Array = (self.below + self.tied / 2) / values.size - 0.5
        """The mid-rank, from -1/2 to 1/2."""
        self._order = np.argsort(self.code, kind="stable")

    def moved(self, others: Array) -> Array:
        """The mean over items of others' value times half the sign of the item's score less this one's."""
        sums = np.concatenate([[0.0], np.cumsum(others[self._order])])
        less, total = sums[self.below], sums[-1]
        moved: Array = (total - sums[self.below + self.tied] - less) / (2 * others.size)
        return moved


def dominated(prefix: Index, order_by: Index, values: Index, bound: Index) -> Index:
    """For each query the number of items among the lowest of one score whose other score is below a bound.

    A wavelet matrix (Claude and Navarro 2012): one pass for each binary digit of the values.

    Args:
        prefix: How many of the items, in ascending order of ``order_by``, each query looks at.
        order_by: The score that orders.
        values: The other score of each item, whole numbers from 0.
        bound: The bound of each query.
    """
    row = values[np.argsort(order_by, kind="stable")]
    start, end = np.zeros_like(prefix), prefix.copy()
    counts = np.zeros_like(prefix)
    highest = max(int(values.max(initial=0)), int(bound.max(initial=0)))
    for digit in reversed(range(highest.bit_length())):
        ones = (row >> digit) & 1
        zeros_before = np.concatenate([[0], np.cumsum(1 - ones)])
        total = int(zeros_before[-1])
        first, last = zeros_before[start], zeros_before[end]
        up = ((bound >> digit) & 1).astype(np.bool_)
        counts += np.where(up, last - first, 0)
        start = np.where(up, total + start - first, first)
        end = np.where(up, total + end - last, last)
        row = np.concatenate([row[ones == 0], row[ones == 1]])
    return counts
