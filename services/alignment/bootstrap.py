"""The bootstrap over items, by weights: a resample says how often each item was drawn.

Statistics take a whole chunk of resamples at once, as a matrix of weights, so that matrix products do the
work. Equal items can be one row with a multiplicity, which changes nothing but the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from services.alignment.estimates import Estimate, absent, with_percentiles

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Statistic = Callable[[Array], Array]
"""From weights (resamples x rows) to figures (resamples x figures), NaN where one is not defined."""

# Cells of the largest matrix of weights, 4 MiB: also a fraction of a second between checkpoints.
_CHUNK_CELLS = 1 << 19
_CHUNK_RESAMPLES = 1024
# Drawing a multinomial costs a binomial a row; drawing items costs a random number and a count an item.
_MULTINOMIAL_ITEMS_PER_ROW = 8


@dataclass(frozen=True)
class Resampling:
    resamples: int
    """How many resamples there are; 0: no intervals."""
    seed: int
    """The seed. Every figure starts from it anew, so that figures of the same items share their resamples."""
    level: float
    """The level of the intervals, such as 0.95."""
    checkpoint: Callable[[], None]
    """Called before every chunk of resamples; may raise to end the work."""


@dataclass(frozen=True)
class Bootstrapped:
    """Statistics with their bootstrap replicates."""

    point: Array
    """The figures of the items themselves, NaN where one is not defined."""
    replicates: Array
    """Resamples x figures, NaN where a resample leaves one undefined."""
    level: float
    """The level of the intervals."""

    def estimate(self, figure: int, count: int, undefined: str) -> Estimate:
        """One figure with its percentile interval.

        Args:
            figure: Its index.
            count: How many items it rests on.
            undefined: The reason to give where it is not defined.
        """
        value = float(self.point[figure])
        if np.isnan(value):
            return absent(undefined, count)
        return with_percentiles(value, count, self.replicates[:, figure], self.level)


def bootstrap(
    statistic: Statistic, multiplicities: Index, resampling: Resampling, *, width: int = 0
) -> Bootstrapped:
    """Computes figures for the items and for every resample; equal for equal rows in equal order.

    Args:
        statistic: What is resampled.
        multiplicities: How many items each row stands for, each at least 1.
        resampling: How many resamples, from which seed.
        width: How many columns the statistic makes of a resample on its way, where that may be more than
            there are items; chunks of resamples are made the smaller for it.
    """
    point = statistic(multiplicities[np.newaxis].astype(np.float64))[0]
    chunks = [statistic(weights) for weights in _weights(multiplicities, resampling, width)]
    replicates = np.concatenate(chunks) if chunks else np.empty((0, point.size))
    return Bootstrapped(point, replicates, resampling.level)


def members(cluster: Index, row: Index, rows: int) -> sparse.csr_array:
    """Which rows the items of each cluster are: clusters x ``rows``, how many items.

    Args:
        cluster: The number of each item's cluster; -1 for one that stands alone.
        row: The row of each item.
        rows: How many rows there are.
    """
    order = np.lexsort((row, cluster))
    cluster, row = cluster[order], row[order]
    alone = int((cluster < 0).sum())
    numbers = np.where(cluster < 0, np.arange(cluster.size), cluster + alone)
    _, codes = np.unique(numbers, return_inverse=True)
    shape = (int(codes.max(initial=-1)) + 1, rows)
    return sparse.csr_array((np.ones(row.size), (codes, row)), shape=shape)


def by_cluster(statistic: Statistic, clusters: sparse.csr_array) -> Statistic:
    """A statistic of rows, as one of how often each cluster was drawn.

    Args:
        statistic: The statistic.
        clusters: What ``members`` made.
    """
    return lambda weights: statistic(weights @ clusters)


def gather(weights: Array, groups: Index, count: int) -> Array:
    """Sums the weights of each group of rows: resamples x rows to resamples x ``count`` groups."""
    resamples = weights.shape[0]
    cells = (np.arange(resamples)[:, np.newaxis] * count + groups).ravel()
    sums: Array = np.bincount(cells, weights.ravel(), resamples * count).astype(np.float64, copy=False)
    return sums.reshape(resamples, count)


def _weights(multiplicities: Index, resampling: Resampling, width: int) -> Iterator[Array]:
    generator = np.random.default_rng(resampling.seed)
    rows, items = multiplicities.size, int(multiplicities.sum())
    few_rows = items >= _MULTINOMIAL_ITEMS_PER_ROW * rows
    row_of_item = np.repeat(np.arange(rows), multiplicities)
    cells = max(width, rows if few_rows else items)
    chunk = max(1, min(_CHUNK_RESAMPLES, _CHUNK_CELLS // cells))
    for start in range(0, resampling.resamples, chunk):
        resampling.checkpoint()
        size = min(chunk, resampling.resamples - start)
        if few_rows:
            yield generator.multinomial(items, multiplicities / items, size).astype(np.float64)
        else:
            drawn = row_of_item[generator.integers(items, size=(size, items))]
            yield gather(np.ones_like(drawn, np.float64), drawn, rows)


def group_codes(values: Iterable[str]) -> tuple[list[str], Index]:
    """The groups by name, and each item's place among them; -1 for an item in none."""
    named = list(values)
    groups = sorted(set(named) - {""})
    places = {name: place for place, name in enumerate(groups)} | {"": -1}
    return groups, np.array([places[value] for value in named], np.intp)


def cluster_codes(values: Sequence[str]) -> Index:
    """A number for each item, by name the same for items of one cluster; one without is its own."""
    places = {value: place for place, value in enumerate(sorted(set(values) - {""}))}
    alone = iter(range(len(places), len(places) + len(values)))
    return np.array([places[value] if value else next(alone) for value in values], np.intp)
