"""Mean scores of systems with bootstrap replicates; ranks and rank correlations of many rankings at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy
from scipy import sparse

from services.alignment.bootstrap import Array, Index, Resampling, bootstrap
from services.alignment.estimates import BIASED_RESAMPLES, Estimate, absent
from services.alignment.jackknife import Scale
from services.alignment.ranking.all_pairs import AllPairs, compare_all

# Means of the same scores in another order differ by rounding; they are a tie. Digits of the largest mean.
_DIGITS = 12


def complete(replicates: Array) -> Array:
    """The resamples without NaN."""
    return replicates[~np.isnan(replicates).any(axis=1)]


def ranks(means: Array) -> Array:
    """Ranks by row, from 1 for the highest; ties get mid-ranks."""
    if not means.size:
        return means
    scale = float(np.abs(means).max()) or 1.0
    found: Array = scipy.stats.rankdata(-np.round(means / scale, _DIGITS), axis=1)
    return found


def taus(first: Array, second: Array) -> Array:
    """Kendall's tau-b (Kendall 1945) of the rows of two matrices, NaN where one is all ties."""
    agreeing = np.zeros(first.shape[0])
    untied = np.zeros((2, first.shape[0]))
    for step in range(1, first.shape[1]):
        signs = [np.sign(ranks[:, step:] - ranks[:, :-step]) for ranks in (first, second)]
        agreeing += (signs[0] * signs[1]).sum(axis=1)
        untied += np.stack([np.abs(one).sum(axis=1) for one in signs])
    return _quotient(agreeing, np.sqrt(untied[0] * untied[1]))


def rhos(first: Array, second: Array) -> Array:
    """Spearman's rho of the rows of two matrices of ranks, NaN where one is all ties."""
    one, other = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (first, second))
    return _quotient((one * other).sum(axis=1), np.sqrt((one**2).sum(axis=1) * (other**2).sum(axis=1)))


def _quotient(numerator: Array, denominator: Array) -> Array:
    quotient = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    clipped: Array = np.clip(quotient, -1.0, 1.0)
    return clipped


MIN_SYSTEMS = 3
"""With two, every rank correlation is -1 or 1."""
ONE_TIE = "all systems are tied"


@dataclass(frozen=True)
class Rows:
    """Parallel arrays: one system's score of one item each."""

    item: Index
    """What is drawn together: the number of the row's item, or of its cluster."""
    system: Index
    macro: Index
    """The number of the row's value of the macro tag; 0 for all where there is none."""
    scores: Array
    """Rows x methods, NaN where a method has no score."""

    def where(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Rows:
        return Rows(self.item[chosen], self.system[chosen], self.macro[chosen], self.scores[chosen])


class Means:
    """The mean scores of all systems by one method, with their bootstrap replicates.

    A system's mean is that of the values of the macro tag, each the mean of its items; there is one where it
    has an item of every value that any system has. All methods share their resamples.
    """

    def __init__(self, rows: Rows, method: int, systems: int, resampling: Resampling) -> None:
        scored = ~np.isnan(rows.scores[:, method])
        values, macros = rows.scores[scored, method], np.unique(rows.macro[scored], return_inverse=True)[1]
        drawn, items = np.unique(rows.item, return_inverse=True)
        items = items[scored]
        parts = int(macros.max(initial=0)) + 1
        cells = rows.system[scored] * parts + macros
        shape = (drawn.size, systems * parts)
        self._sums = sparse.csr_array((values, (items, cells)), shape=shape)
        self._counts = sparse.csr_array((np.ones(values.size), (items, cells)), shape=shape)
        self._parts, self._systems = parts, systems
        self._resampling = resampling
        self.counts: Index = np.bincount(rows.system[scored], minlength=systems)
        self.totals: Index = np.bincount(rows.system, minlength=systems)
        self._errors = _standard_errors(values, rows.system[scored], items, systems) if parts == 1 else None
        found = bootstrap(self._statistic, np.ones(drawn.size, np.intp), resampling, width=shape[1])
        self._found, self.point = found, found.point
        self.known = ~np.isnan(self.point)

    def estimate(self, system: int) -> Estimate:
        count, total = int(self.counts[system]), int(self.totals[system])
        if not self.known[system]:
            reason = "it has no score for a part of the items" if count else "it has no score"
            return absent(reason, count).of(total)
        mean = self._found.estimate(system, count, "", Scale.REAL)
        error = None if self._errors is None else self._errors[system]
        return replace(mean, total=total, standard_error=error)

    @property
    def replicates(self) -> Array:
        """Resamples x systems."""
        return self._found.replicates

    def ranks(self) -> tuple[Array, Array]:
        """The ranks of the systems with a mean, and those in each resample where all of them have one."""
        point = ranks(self.point[np.newaxis, self.known])[0]
        return point, ranks(complete(self.replicates[:, self.known]))

    def all_pairs(self) -> AllPairs | None:
        """Every two systems with a mean compared, by their place among these; ``None`` without resamples."""
        resampling, places = self._resampling, np.flatnonzero(self.known)
        if not resampling.resamples or not places.size:
            return None
        columns = (places[:, np.newaxis] * self._parts + np.arange(self._parts)).ravel()
        return compare_all(self._sums[:, columns], self._counts[:, columns], self._parts, resampling)

    def stability(self) -> Estimate:
        """The mean tau-b between the resampled rankings and this one."""
        count = int(self.known.sum())
        if count < MIN_SYSTEMS:
            return absent(f"{count} systems are fewer than {MIN_SYSTEMS}", count)
        point, replicates = self.ranks()
        if not replicates.shape[0]:
            return absent("there are no resamples", count)
        found = taus(np.broadcast_to(point, replicates.shape), replicates)
        if np.isnan(found).all():
            return absent(ONE_TIE, count)
        return Estimate(float(np.nanmean(found)), count, withheld=BIASED_RESAMPLES)

    def _statistic(self, weights: Array) -> Array:
        sums, counts = (
            (weights @ table).reshape(-1, self._systems, self._parts) for table in (self._sums, self._counts)
        )
        parts = np.full_like(sums, np.nan)
        np.divide(sums, counts, out=parts, where=counts > 0)
        means: Array = parts.mean(axis=2)
        return means


def _standard_errors(values: Array, systems: Index, items: Index, count: int) -> list[float | None] | None:
    """The standard error of each system's mean, s / sqrt(n); ``None`` where an item is several rows."""
    if np.unique(np.stack([systems, items]), axis=1).shape[1] < values.size:
        return None
    errors: list[float | None] = []
    for system in range(count):
        own = values[systems == system]
        errors.append(float(own.std(ddof=1) / np.sqrt(own.size)) if own.size > 1 else None)
    return errors
