"""All pairs of systems at once: differences of their means, adjusted p-values, simultaneous ranks.

The best of several systems is chosen from the data, so the tests of the others against it are not those of a
comparison that was planned: of 20 equal systems the first differs "significantly" from some other by Holm's
adjustment of its 19 tests in a fifth of the cases. Here every pair is tested, with the largest of all
statistics under sign flips (Romano and Wolf 2005, step-down). Where systems are equal on each unit but for
chance, any pair that is said to differ has a probability of at most one less the level.

The ranks of a system are one more than the number of systems shown to be better, up to the number of systems
less those shown to be worse. All of them hold together with the level (Al Mohamad, van Zwet, Solari and
Goeman 2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from services.alignment.bootstrap import Array, Index, Resampling
from services.alignment.estimates import EQUAL, ONE_CLUSTER, Estimate

SIMULTANEOUS = "sign flips, simultaneous over all pairs"
MAX_UNITS = 1024
"""The most units whose signs are drawn one by one; more are summed in as many random blocks."""

# Up to as many units all assignments of signs count, 4,096 at most: half of them as opposites of the others.
_MAX_EXACT = 12
# Cells of the largest matrix: also a fraction of a second between checkpoints.
_CHUNK_CELLS = 1 << 20
_ROUNDING = 1e-9
_FEWEST = 2


@dataclass(frozen=True)
class AllPairs:
    """The comparisons of every two systems, as square matrices."""

    differences: Array
    """The mean of the row's system less that of the column's."""
    errors: Array
    """The standard errors of the differences."""
    p: Array
    """Two-sided, of the pair alone."""
    adjusted: Array
    """The same for all pairs together."""
    reach: float
    """The half width of the simultaneous intervals in standard errors; infinite with too few units."""
    units: int
    level: float

    def difference(self, system: int, other: int, count: int) -> Estimate:
        """The difference of two systems with its simultaneous interval."""
        value, error = float(self.differences[system, other]), float(self.errors[system, other])
        if self.units < _FEWEST or not math.isfinite(self.reach):
            reason = ONE_CLUSTER if self.units < _FEWEST else f"{self.units} items or clusters are too few"
            return Estimate(value, count, withheld=reason)
        if error <= _ROUNDING * max(1.0, abs(value)):
            return Estimate(value, count, withheld=EQUAL)
        ends = value - self.reach * error, value + self.reach * error
        return Estimate(value, count, *ends, interval_method=SIMULTANEOUS, standard_error=error)

    def rank_interval(self, system: int) -> tuple[int, int]:
        """The lowest and the highest rank of a system."""
        shown = self.adjusted[system] <= 1 - self.level + _ROUNDING
        signs = self.differences[system][shown]
        return 1 + int((signs < 0).sum()), self.adjusted.shape[0] - int((signs > 0).sum())


def compare_all(
    sums: sparse.csr_array, counts: sparse.csr_array, parts: int, resampling: Resampling
) -> AllPairs:
    """Compares every two systems.

    The mean of a system is that of its parts, each ``sum / count`` over its items. A unit contributes to the
    difference of two means

        sum_i / N_i - sum_j / N_j - (n_i / N_i - n_j / N_j) (m_i + m_j) / 2

    with its sums, its numbers of items n, and the means m of all N items, so that a unit on which one system
    is missing counts as if it had the mean of the two. Contributions add up to the difference, and the signs
    of those of equal systems are exchangeable.

    Args:
        sums: Units x (systems x parts): sums of scores.
        counts: The same: numbers of items. Every part of every system has one.
        parts: The number of parts.
        resampling: How many assignments of signs are drawn.
    """
    contributions = _Contributions(sums, counts, parts, resampling.seed)
    first, second = contributions.first, contributions.second
    units = contributions.units
    squares, total = np.zeros(first.size), np.zeros(first.size)
    rows = max(1, _CHUNK_CELLS // max(1, first.size))
    for start in range(0, units, rows):
        resampling.checkpoint()
        own = contributions.of(np.eye(units)[start : start + rows])
        squares += (own**2).sum(axis=1)
        total += own.sum(axis=1)
    scale = np.sqrt(squares)
    largest = float(scale.max(initial=0.0))
    still = scale <= _ROUNDING * max(largest, float(np.abs(contributions.means).max(initial=0.0)))
    scale[still] = np.inf
    seen = np.abs(total) / scale
    order = np.argsort(-seen, kind="stable")
    alone, together, drawn = np.zeros(first.size), np.zeros(first.size), 0
    highest: list[Array] = []
    for signs in _signs(units, resampling, rows):
        flipped = np.abs(contributions.of(signs)) / scale[:, np.newaxis]
        alone += np.count_nonzero(flipped >= seen[:, np.newaxis] - _ROUNDING, axis=1)
        # The largest statistic of each pair and of those after it.
        beyond = np.maximum.accumulate(flipped[order[::-1]])[::-1]
        together += np.count_nonzero(beyond >= seen[order, np.newaxis] - _ROUNDING, axis=1)
        highest.append(flipped.max(axis=0, initial=0.0))
        drawn += signs.shape[0]
    # Where signs are drawn, those that were seen count as one of them.
    extra = int(units > _MAX_EXACT)
    stepped = np.maximum.accumulate((together + extra) / (drawn + extra))
    adjusted = np.empty(first.size)
    adjusted[order] = stepped
    variance = np.maximum(0.0, squares - total**2 / units) * units / max(1, units - 1)
    size = contributions.systems

    def square(values: Array, sign: float, diagonal: float) -> Array:
        matrix = np.full((size, size), diagonal)
        matrix[first, second], matrix[second, first] = values, sign * values
        return matrix

    reach = _reach(np.concatenate(highest), extra, units, resampling.level)
    return AllPairs(
        differences=square(total, -1.0, 0.0),
        errors=square(np.sqrt(variance), 1.0, 0.0),
        p=square((alone + extra) / (drawn + extra), 1.0, 1.0),
        adjusted=square(adjusted, 1.0, 1.0),
        reach=reach,
        units=units,
        level=resampling.level,
    )


class _Contributions:
    """The contributions of units to the differences of every two means, as sums with weights."""

    def __init__(self, sums: sparse.csr_array, counts: sparse.csr_array, parts: int, seed: int) -> None:
        units, cells = sums.shape
        if units > MAX_UNITS:
            blocks = np.random.default_rng(seed).permutation(units) % MAX_UNITS
            together = sparse.csr_array(
                (np.ones(units), (blocks, np.arange(units))), shape=(MAX_UNITS, units)
            )
            sums, counts = together @ sums, together @ counts
        self.systems = cells // parts
        shape = (sums.shape[0], self.systems, parts)
        items = counts.toarray().reshape(shape)
        self.units = shape[0]
        self._shares: Array = items / items.sum(axis=0) / parts
        scores = sums.toarray().reshape(shape)
        self.means: Array = scores.sum(axis=0) / items.sum(axis=0)
        self._own: Array = (scores / items.sum(axis=0)).sum(axis=2) / parts
        self.first, self.second = (one.astype(np.intp) for one in np.triu_indices(self.systems, 1))
        equal = (self._shares == self._shares[:, :1]).all(axis=(0, 1))
        self._unequal: Index = np.flatnonzero(~equal)

    def of(self, weights: Array) -> Array:
        """The weighted sums of contributions: pairs x weights."""
        first, second = self.first, self.second
        own = self._own.T @ weights.T
        found: Array = own[first] - own[second]
        for part in self._unequal.tolist():
            shares = self._shares[:, :, part].T @ weights.T
            middle = (self.means[first, part] + self.means[second, part]) / 2
            found -= (shares[first] - shares[second]) * middle[:, np.newaxis]
        return found


def _signs(units: int, resampling: Resampling, rows: int) -> Iterator[Array]:
    """Matrices of signs, one assignment a row: all of them with few units, else as many as are asked for.

    Of all, one of two opposites is left out: statistics have no sign, so that theirs are equal.
    """
    exact = units <= _MAX_EXACT
    count = 1 << max(0, units - 1) if exact else resampling.resamples
    generator = np.random.default_rng(resampling.seed)
    chunk = max(1, min(rows, _CHUNK_CELLS // units))
    for start in range(0, count, chunk):
        resampling.checkpoint()
        size = min(chunk, count - start)
        if exact:
            bits = (np.arange(start, start + size)[:, np.newaxis] >> np.arange(units)) & 1
        else:
            bits = generator.integers(0, 2, (size, units))
        yield np.where(bits > 0, 1.0, -1.0)


def _reach(highest: Array, extra: int, units: int, level: float) -> float:
    """The smallest statistic that is reached with at most the error, as a multiple of the standard error."""
    ordered = np.sort(highest)
    reached = ordered.size - np.searchsorted(ordered, ordered - _ROUNDING) + extra
    rare = ordered[reached <= (ordered.size + extra) * (1 - level) + _ROUNDING]
    if not rare.size or rare[0] ** 2 >= units * (1 - _ROUNDING):
        return math.inf
    return float(rare[0] * math.sqrt((units - 1) / (units - rare[0] ** 2)))
