"""Correlations of measures with human scores, at every level, and differences between every two measures.

Correlations at the level of summaries and of systems. Items are systems' answers to inputs. Over all items a
correlation mixes how hard inputs are with how good answers are. The summary level correlates the systems'
answers within each input and takes the mean; the system level correlates the systems' means (Bhandari et al.
2020, section 3; Deutsch et al. 2021).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from dramaturg.api.alignment.v1 import correlation_pb2 as pb
from services.alignment.bootstrap import MAX_DELETED, Array, Index, Resampling
from services.alignment.correlation.coefficients import ScorePairs, each, influences, pearson, williams_test
from services.alignment.estimates import (
    Estimate,
    Scale,
    absent,
    benjamini_hochberg,
    holm,
    pseudo_values,
    with_jackknife,
)

_FEWEST = 3
_COEFFICIENTS = 3
_NOISE = "noise in the means of few systems biases it, so no interval covers"


@dataclass(frozen=True)
class Levels:
    """The clusters and systems of items."""

    cluster: Index
    """The number of each item's cluster."""
    system: Index
    """The number of each item's system, -1 without one."""
    clustered: bool
    """Whether the items are clustered."""
    systems: bool
    """Whether the items have systems."""

    @classmethod
    def independent(cls, items: int) -> Levels:
        numbers = np.arange(items)
        return cls(numbers, np.full(items, -1), clustered=False, systems=False)

    def at(self, items: Index) -> Levels:
        return Levels(self.cluster[items], self.system[items], self.clustered, self.systems)

    def clusters(self) -> Index:
        """The clusters, numbered from 0 without gaps; each item its own where they are independent."""
        if not self.clustered:
            return np.arange(self.cluster.size)
        codes: Index = np.unique(self.cluster, return_inverse=True)[1]
        return codes

    def measure(
        self, human: Array, column: Array, level: float, *, resampled: bool
    ) -> tuple[pb.LevelCorrelation | None, pb.LevelCorrelation | None]:
        """The correlations at the level of summaries, and of systems; ``None`` where not asked for."""
        summary = _level(self._summary(human, column, level, resampled=resampled)) if self.clustered else None
        return summary, _level(self._system(human, column)) if self.systems else None

    def _summary(self, human: Array, column: Array, level: float, *, resampled: bool) -> list[Estimate]:
        codes = self.clusters()
        order = np.argsort(codes, kind="stable")
        found = []
        for inside in np.split(order, np.cumsum(np.bincount(codes))[:-1]):
            one, other = human[inside], column[inside]
            if inside.size >= _FEWEST and np.ptp(one) and np.ptp(other):
                found.append(influences(one, other)[0])
        total = int(codes.max()) + 1
        if not found:
            nothing = absent(f"no cluster has {_FEWEST} items with different scores").of(total)
            return [nothing] * _COEFFICIENTS
        values = np.array(found)
        means, count = values.mean(axis=0), values.shape[0]
        if not resampled:
            return [Estimate(float(mean), count).of(total) for mean in means]
        return [
            with_jackknife(float(mean), count, values[:, place].copy(), level).of(total)
            for place, mean in enumerate(means)
        ]

    def _system(self, human: Array, column: Array) -> list[Estimate]:
        known = self.system >= 0
        systems = np.unique(self.system[known], return_inverse=True)[1]
        count = int(systems.max(initial=-1)) + 1
        if count < _FEWEST:
            return [absent(f"{count} systems are fewer than {_FEWEST}", count)] * _COEFFICIENTS
        weights = (np.ones(systems.size), human[known], column[known])
        point = _of_means(*(np.bincount(systems, part, count).astype(np.float64) for part in weights))
        if np.isnan(point).any():
            return [absent("all systems have the same mean", count)] * _COEFFICIENTS
        return [Estimate(float(value), count, withheld=_NOISE) for value in point]


def _level(estimates: Sequence[Estimate]) -> pb.LevelCorrelation:
    pearson_, spearman, kendall = (one.encode() for one in estimates)
    return pb.LevelCorrelation(pearson=pearson_, spearman=spearman, kendall=kendall)


def _of_means(counts: Array, human: Array, column: Array) -> Array:
    """The three correlations of the means of systems; NaN if one has no item or all means are equal."""
    if not counts.all():
        return np.full(_COEFFICIENTS, np.nan)
    one, other = human / counts, column / counts
    if not np.ptp(one) or not np.ptp(other):
        return np.full(_COEFFICIENTS, np.nan)
    return influences(one, other)[0]


MIN_ITEMS = 3
"""With two items every correlation is -1 or 1."""
MIN_WILLIAMS_ITEMS = 4
"""Williams' t has n - 3 degrees of freedom."""


@dataclass(frozen=True)
class Series:
    items: Index
    """The indices of the items that have one, ascending."""
    values: Array
    """Their scores, finite."""

    def among(self, chosen: Index) -> Series:
        """The scores of some items, ascending, which are renumbered from 0."""
        places = np.searchsorted(chosen, self.items)
        inside = (places < chosen.size) & (chosen[np.minimum(places, chosen.size - 1)] == self.items)
        return Series(places[inside], self.values[inside])


def correlate(
    human: Array, measures: Mapping[str, Series], resampling: Resampling, levels: Levels | None = None
) -> pb.CorrelateScoresResponse:
    """Correlates measures with human scores over the items they score, and every two over their common items.

    Equal items in another order give equal figures and intervals.

    Args:
        human: The human score of each item, finite.
        measures: The measures by name.
        resampling: How intervals are made.
        levels: The clusters and systems of the items. Default: all items are independent.
    """
    levels = levels or Levels.independent(human.size)
    correlations: list[pb.MeasureCorrelation] = []
    differences: list[pb.CorrelationDifference] = []
    for plan in _plans(measures, resampling):
        resampling.checkpoint()
        sample = _Sample(
            human, {name: measures[name] for name in sorted(plan.members)}, plan.items, resampling, levels
        )
        correlations += [sample.correlation(name) for name in plan.alone]
        differences += [sample.difference(first, second) for first, second in plan.paired]
    ps = [one.williams_p if one.HasField("williams_p") else None for one in differences]
    for one, step, rate in zip(differences, holm(ps), benjamini_hochberg(ps), strict=True):
        one.MergeFrom(pb.CorrelationDifference(holm_p=step, false_discovery_p=rate))
    return pb.CorrelateScoresResponse(
        measures=sorted(correlations, key=lambda one: one.measure),
        differences=sorted(differences, key=lambda one: (one.first_measure, one.second_measure)),
    )


@dataclass
class _Plan:
    """The measures and pairs computed over one set of items."""

    items: Index
    alone: list[str] = field(default_factory=list)
    paired: list[tuple[str, str]] = field(default_factory=list)

    @property
    def members(self) -> set[str]:
        return {*self.alone, *(name for pair in self.paired for name in pair)}


def _plans(measures: Mapping[str, Series], resampling: Resampling) -> Iterable[_Plan]:
    plans: dict[bytes, _Plan] = {}
    keys = {name: series.items.tobytes() for name, series in measures.items()}
    for name in sorted(measures):
        plans.setdefault(keys[name], _Plan(measures[name].items)).alone.append(name)
    shared: dict[tuple[bytes, bytes], _Plan] = {}
    for first, second in combinations(sorted(measures), 2):
        resampling.checkpoint()
        both = keys[first], keys[second]
        if both not in shared:
            items = np.intersect1d(measures[first].items, measures[second].items, assume_unique=True)
            shared[both] = plans.setdefault(items.tobytes(), _Plan(items))
        shared[both].paired.append((first, second))
    return plans.values()


class _Sample:
    """A set of items with human scores and the measures that score all of them."""

    def __init__(
        self,
        human: Array,
        measures: Mapping[str, Series],
        items: Index,
        resampling: Resampling,
        levels: Levels,
    ) -> None:
        columns = [series.values[np.searchsorted(series.items, items)] for series in measures.values()]
        # Sums must not depend on the order of the items.
        order = np.lexsort([*reversed(columns), human[items]])
        self._human = human[items][order]
        self._columns = {name: column[order] for name, column in zip(measures, columns, strict=True)}
        self._resampling = resampling
        self._total = human.size
        self._levels = levels.at(items[order])
        self._found: dict[str, _Coefficients] = {}

    def correlation(self, name: str) -> pb.MeasureCorrelation:
        count, reason = self._human.size, self._undefined(name)
        if reason:
            nothing = absent(reason, count).of(self._total).encode()
            return pb.MeasureCorrelation(measure=name, pearson=nothing, spearman=nothing, kendall=nothing)
        found = self._coefficients(name)
        pearson_, spearman, kendall = (
            self._interval(float(value), pseudo, Scale.CORRELATION).of(self._total).encode()
            for value, pseudo in zip(found.values, found.pseudo.T, strict=True)
        )
        level, resampled = self._resampling.level, bool(self._resampling.resamples)
        summary, system = self._levels.measure(self._human, self._columns[name], level, resampled=resampled)
        return pb.MeasureCorrelation(
            measure=name,
            pearson=pearson_,
            spearman=spearman,
            kendall=kendall,
            summary_level=summary,
            system_level=system,
        )

    def difference(self, first: str, second: str) -> pb.CorrelationDifference:
        self._resampling.checkpoint()
        count, reason = self._human.size, self._undefined(first) or self._undefined(second)
        if reason:
            nothing = absent(reason, count)
            return self._difference(first, second, nothing, None, nothing)
        t, p = self._williams(first, second)
        one, other = self._coefficients(first), self._coefficients(second)
        value, pseudo = one.values[2] - other.values[2], one.pseudo[:, 2] - other.pseudo[:, 2]
        difference = self._interval(float(value), pseudo, Scale.REAL)
        return self._difference(first, second, t, p, difference)

    def _difference(
        self, first: str, second: str, t: Estimate, p: float | None, taus: Estimate
    ) -> pb.CorrelationDifference:
        return pb.CorrelationDifference(
            first_measure=first,
            second_measure=second,
            williams_t=t.of(self._total).encode(),
            williams_p=p,
            kendall_difference=taus.of(self._total).encode(),
        )

    def _interval(self, value: float, pseudo: Array, scale: Scale) -> Estimate:
        if not self._resampling.resamples:
            return Estimate(value, self._human.size)
        return with_jackknife(value, self._human.size, pseudo, self._resampling.level, scale)

    def _williams(self, first: str, second: str) -> tuple[Estimate, float | None]:
        count = self._human.size
        if count < MIN_WILLIAMS_ITEMS:
            return absent(f"{count} items are fewer than {MIN_WILLIAMS_ITEMS}", count), None
        if self._levels.clustered:
            return absent("the items are clustered, and the test is for independent ones", count), None
        between = pearson(self._columns[first], self._columns[second])
        ones, others = (float(self._coefficients(name).values[0]) for name in (first, second))
        found = williams_test(ones, others, between, count)
        if found is None:
            return absent(f"{first} and {second} determine each other", count), None
        return Estimate(found.t, count), found.p

    def _undefined(self, name: str) -> str:
        """The reason why a measure's correlations are undefined; empty if they are defined."""
        if self._human.size < MIN_ITEMS:
            return f"{self._human.size} items are fewer than {MIN_ITEMS}"
        if self._human.min() == self._human.max():
            return "all human scores are equal"
        column = self._columns[name]
        return f"all scores of {name} are equal" if column.min() == column.max() else ""

    def _coefficients(self, name: str) -> _Coefficients:
        if name not in self._found:
            self._resampling.checkpoint()
            self._found[name] = _coefficients(
                self._human, self._columns[name], self._levels.clusters(), self._resampling
            )
        return self._found[name]


@dataclass(frozen=True)
class _Coefficients:
    values: Array
    """Pearson's r, Spearman's rho, Kendall's tau-b."""
    pseudo: Array
    """The pseudo-values of each item or cluster: units x 3."""


def _coefficients(human: Array, column: Array, clusters: Index, resampling: Resampling) -> _Coefficients:
    values, influence = influences(human, column)
    units = int(clusters.max()) + 1
    if max(units, human.size) > MAX_DELETED:
        sums = np.stack([np.bincount(clusters, part, units) for part in influence.T], axis=1)
        return _Coefficients(values, values + units / human.size * sums)
    pairs = ScorePairs(human, column)
    inside = 1.0 - (np.arange(units)[:, np.newaxis] == clusters)
    resampling.checkpoint()
    deleted = each(pairs.pearson, pairs.spearman, pairs.kendall)(inside)
    return _Coefficients(values, pseudo_values(values, deleted, units))
