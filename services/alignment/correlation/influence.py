"""Influence of each item on Pearson's, Spearman's and Kendall's correlation, for many items.

The influence functions give the infinitesimal jackknife (Jaeckel 1972; Efron 1982, chapter 6): the standard
error from one pass over the items instead of thousands of resamples. Everything is O(n log n).
"""

from __future__ import annotations

import numpy as np

from services.alignment.bootstrap import Array, Index


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
