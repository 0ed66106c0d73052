"""Resampling of items, by weights: a resample is the number of times that each item was drawn.

Statistics take a chunk of resamples at once as a matrix of weights, so that matrix products do the work.
Equal items can share a row with a multiplicity, which only affects the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from services.alignment.estimates import (
    ONE_CLUSTER,
    Estimate,
    Scale,
    absent,
    pseudo_values,
    with_jackknife,
    with_percentiles,
)

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Statistic = Callable[[Array], Array]
"""Maps weights (resamples x rows) to values (resamples x values), NaN if undefined."""

MAX_DELETED = 512
"""The most different rows that the jackknife deletes one by one; of more it deletes groups."""
GROUPS = 200
"""The number of groups: the standard error has 199 degrees of freedom."""

_FEWEST_UNITS = 2

# Cells of the largest matrix of weights, 4 MiB: also a fraction of a second between checkpoints.
_CHUNK_CELLS = 1 << 19
_CHUNK_RESAMPLES = 1024
# Drawing a multinomial costs a binomial a row; drawing items costs a random number and a count an item.
_MULTINOMIAL_ITEMS_PER_ROW = 8


@dataclass(frozen=True)
class Resampling:
    resamples: int
    """The number of resamples; 0: no intervals, of the jackknife either."""
    seed: int
    """The seed. Every statistic restarts from it, so that statistics of the same items share their
    resamples.
    """
    level: float
    """The level of the intervals, e.g. 0.95."""
    checkpoint: Callable[[], None]
    """Called before every chunk of resamples; may raise to stop the work."""


class Bootstrapped:
    """Statistics with their intervals, of the jackknife or of resamples.

    Args:
        statistic: The statistics as a function of weights.
        multiplicities: The number of items of each row, each at least 1.
        resampling: The number of resamples and the seed.
        width: The number of columns of the statistic's intermediate matrices.
    """

    def __init__(
        self, statistic: Statistic, multiplicities: Index, resampling: Resampling, width: int
    ) -> None:
        self._statistic, self._multiplicities = statistic, multiplicities
        self._resampling, self._width = resampling, width
        self.level = resampling.level
        self.point: Array = statistic(multiplicities[np.newaxis].astype(np.float64))[0]
        """The values of the original items, NaN if undefined."""

    @cached_property
    def replicates(self) -> Array:
        """Resamples x values, NaN if undefined for a resample."""
        drawn = _weights(self._multiplicities, self._resampling, self._width)
        chunks = [self._statistic(weights) for weights in drawn]
        return np.concatenate(chunks) if chunks else np.empty((0, self.point.size))

    @cached_property
    def _pseudo(self) -> tuple[Array, Array]:
        """The pseudo-values of the units, units x values, and the multiplicity of each unit.

        A unit is an item of a row or, with more than ``MAX_DELETED`` rows, one of ``GROUPS`` random groups of
        items (the delete-group jackknife, Kott 2001).
        """
        rows, items = self._multiplicities.size, int(self._multiplicities.sum())
        multiplicities = self._multiplicities.astype(np.float64)
        if rows <= MAX_DELETED:
            removed, weights = sparse.eye_array(rows, format="csr"), multiplicities
        else:
            groups = np.random.default_rng(self._resampling.seed).permutation(items) % GROUPS
            row_of_item = np.repeat(np.arange(rows), self._multiplicities)
            removed = sparse.csr_array((np.ones(items), (groups, row_of_item)), shape=(GROUPS, rows))
            weights = np.ones(GROUPS)
        chunk = max(1, _CHUNK_CELLS // max(rows, self._width))
        found = []
        for start in range(0, weights.size, chunk):
            self._resampling.checkpoint()
            found.append(self._statistic(multiplicities - removed[start : start + chunk].toarray()))
        deleted = np.concatenate(found)
        return pseudo_values(self.point, deleted, int(weights.sum())), weights

    def estimate(self, figure: int, count: int, undefined: str, scale: Scale | None = None) -> Estimate:
        """Returns one value with its interval.

        Args:
            figure: The index of the value.
            count: The number of items used.
            undefined: The reason reported if the value is undefined.
            scale: The scale of the value, if it is a smooth function of the items. ``None``: it is not, and
                has the percentile interval of the bootstrap.
        """
        value = float(self.point[figure])
        if np.isnan(value):
            return absent(undefined, count)
        if not self._resampling.resamples:
            return Estimate(value, count)
        if scale is None:
            return with_percentiles(value, count, self.replicates[:, figure], self.level)
        if int(self._multiplicities.sum()) < _FEWEST_UNITS:
            return Estimate(value, count, withheld=ONE_CLUSTER)
        pseudo, weights = self._pseudo
        return with_jackknife(value, count, pseudo[:, figure], self.level, scale, multiplicities=weights)


def bootstrap(
    statistic: Statistic, multiplicities: Index, resampling: Resampling, *, width: int = 0
) -> Bootstrapped:
    """Computes a statistic for the items; deterministic for equal rows in equal order.

    Args:
        statistic: The statistic.
        multiplicities: The number of items of each row, each at least 1.
        resampling: The number of resamples and the seed.
        width: The number of columns of the statistic's intermediate matrices, if larger than the number of
            items; it reduces the size of chunks.
    """
    return Bootstrapped(statistic, multiplicities, resampling, width)


def members(cluster: Index, row: Index, rows: int) -> sparse.csr_array:
    """The number of items by cluster and row: clusters x ``rows``.

    Args:
        cluster: The number of each item's cluster; -1 without one.
        row: The row of each item.
        rows: The number of rows.
    """
    order = np.lexsort((row, cluster))
    cluster, row = cluster[order], row[order]
    alone = int((cluster < 0).sum())
    numbers = np.where(cluster < 0, np.arange(cluster.size), cluster + alone)
    _, codes = np.unique(numbers, return_inverse=True)
    shape = (int(codes.max(initial=-1)) + 1, rows)
    return sparse.csr_array((np.ones(row.size), (codes, row)), shape=shape)


def by_cluster(statistic: Statistic, clusters: sparse.csr_array) -> Statistic:
    """Converts a statistic of row weights into one of cluster weights.

    Args:
        statistic: The statistic.
        clusters: The result of ``members``.
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
    """The sorted group names and each item's group index; -1 without a group."""
    named = list(values)
    groups = sorted(set(named) - {""})
    places = {name: place for place, name in enumerate(groups)} | {"": -1}
    return groups, np.array([places[value] for value in named], np.intp)


def cluster_codes(values: Sequence[str]) -> Index:
    """A cluster number for each item; an item without a cluster is its own."""
    places = {value: place for place, value in enumerate(sorted(set(values) - {""}))}
    alone = iter(range(len(places), len(places) + len(values)))
    return np.array([places[value] if value else next(alone) for value in values], np.intp)
