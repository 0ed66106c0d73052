"""Rankings of systems by several methods: means, rank correlations, stability under resampling, all pairs.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import scipy
from scipy import sparse

from dramaturg.api.alignment.v1 import ranking_pb2 as pb
from services.alignment.bootstrap import Array, Index, Resampling, bootstrap
from services.alignment.errors import too_large
from services.alignment.estimates import BIASED_RESAMPLES, EQUAL, ONE_CLUSTER, Estimate, Scale, absent

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


MAX_SYSTEMS = 200
"""The most systems of one request: every two are compared in every resample."""
MAX_METHODS = 100
"""The most methods of one request: every two are compared."""
MAX_GROUPS = 2000
"""The most groups of one answer."""


@dataclass(frozen=True)
class Design:
    rows: Rows
    systems: Sequence[str]
    """By name."""
    methods: Sequence[str]
    """By name, as the columns of the scores."""
    groups: Mapping[str, tuple[Sequence[str], Index]]
    """By tag: its values, and which each row has, -1 for none."""
    baseline: str = ""
    """The system that differences are to; empty: the first of each ranking."""


def rank(design: Design, resampling: Resampling) -> pb.RankSystemsResponse:
    """Ranks over all rows, then over those of each value of each tag.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many systems, methods or groups.
    """
    counts = (
        ("systems", MAX_SYSTEMS, len(design.systems)),
        ("methods", MAX_METHODS, len(design.methods)),
        ("groups", MAX_GROUPS, sum(len(values) for values, _ in design.groups.values())),
    )
    for what, limit, actual in counts:
        if actual > limit:
            raise too_large(what, limit=limit, actual=actual)
    found = pb.RankSystemsResponse(groups=[_rank("", "", design.rows, design, resampling)])
    for tag, (values, codes) in design.groups.items():
        for code, value in enumerate(values):
            resampling.checkpoint()
            rows = design.rows.where(codes == code)
            found.groups.append(_rank(tag, value, rows, design, resampling))
    return found


def _rank(tag: str, value: str, rows: Rows, design: Design, resampling: Resampling) -> pb.RankGroup:
    means = [Means(rows, column, len(design.systems), resampling) for column in range(len(design.methods))]
    rankings = [
        pb.MethodRanking(method=method, systems=_ranked(found, design), stability=found.stability().encode())
        for method, found in zip(design.methods, means, strict=True)
    ]
    correlations = [
        _correlate(design.methods, first, second, means, resampling)
        for first, second in combinations(range(len(design.methods)), 2)
    ]
    return pb.RankGroup(tag=tag, value=value, methods=rankings, correlations=correlations)


def _ranked(means: Means, design: Design) -> Iterator[pb.RankedSystem]:
    point, replicates = means.ranks()
    places = np.flatnonzero(means.known)
    names = [design.systems[place] for place in places.tolist()]
    pairs = means.all_pairs()
    order = np.argsort(point, kind="stable").tolist()
    firsts = replicates == replicates.min(axis=1, keepdims=True) if places.size else replicates
    shares = firsts / firsts.sum(axis=1, keepdims=True) if places.size else firsts
    baseline = names.index(design.baseline) if design.baseline in names else None
    if not design.baseline and order:
        baseline = order[0]
    for place in order:
        system = int(places[place])
        found = pb.RankedSystem(
            system=names[place], mean=means.estimate(system).encode(), rank=float(point[place])
        )
        if replicates.shape[0]:
            found.first_share = float(shares[:, place].mean())
        if pairs is not None:
            found.rank_lower, found.rank_upper = pairs.rank_interval(place)
        if baseline is not None and place != baseline:
            count = int(means.counts[system])
            difference = Estimate(float(means.point[system] - means.point[places[baseline]]), count)
            if pairs is not None:
                difference = pairs.difference(place, baseline, count)
                found.p_value = float(pairs.p[place, baseline])
                found.adjusted_p_value = float(pairs.adjusted[place, baseline])
            found.difference.CopyFrom(difference.encode())
        yield found
    for system in np.flatnonzero(~means.known & (means.totals > 0)).tolist():
        yield pb.RankedSystem(system=design.systems[system], mean=means.estimate(system).encode())


def _correlate(
    methods: Sequence[str], first: int, second: int, means: Sequence[Means], resampling: Resampling
) -> pb.RankCorrelation:
    resampling.checkpoint()
    one, other = means[first], means[second]
    known = one.known & other.known
    count = int(known.sum())
    names = methods[first], methods[second]
    reason = f"{count} systems are fewer than {MIN_SYSTEMS}" if count < MIN_SYSTEMS else ""
    for name, found in zip(names, (one, other), strict=True):
        if not reason and np.ptp(ranks(found.point[np.newaxis, known])) == 0:
            reason = f"{ONE_TIE} by {name}"
    spearman = kendall = absent(reason, count)
    if not reason:
        points = [ranks(found.point[np.newaxis, known]) for found in (one, other)]
        spearman, kendall = (
            Estimate(float(figure(*points)[0]), count, withheld=BIASED_RESAMPLES) for figure in (rhos, taus)
        )
    return pb.RankCorrelation(
        first_method=names[0], second_method=names[1], spearman=spearman.encode(), kendall=kendall.encode()
    )
