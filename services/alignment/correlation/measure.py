"""Correlations of measures with human scores, and differences between every two measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from services.alignment.bootstrap import Array, Bootstrapped, Index, Resampling, Statistic, bootstrap
from services.alignment.correlation.coefficients import ScorePairs, each, pearson, williams_test
from services.alignment.estimates import Estimate, absent, with_percentiles

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


@dataclass(frozen=True)
class MeasureCorrelation:
    """The correlation of one measure with human scores."""

    measure: str
    pearson: Estimate
    spearman: Estimate
    kendall: Estimate


@dataclass(frozen=True)
class CorrelationDifference:
    """The difference of two measures' correlations with human scores."""

    first: str
    second: str
    williams_t: Estimate
    williams_p: float | None
    kendall_difference: Estimate


@dataclass(frozen=True)
class Correlations:
    """All correlations of a request, ordered by name."""

    measures: Sequence[MeasureCorrelation]
    differences: Sequence[CorrelationDifference]


def correlate(human: Array, measures: Mapping[str, Series], resampling: Resampling) -> Correlations:
    """Correlates measures with human scores over the items they score, and every two over their common items.

    Measures of the same items share their resamples, so that differences are paired. Equal items in another
    order give equal figures and intervals.

    Args:
        human: The human score of each item, finite.
        measures: The measures by name.
        resampling: How intervals are made.
    """
    correlations: list[MeasureCorrelation] = []
    differences: list[CorrelationDifference] = []
    for plan in _plans(measures, resampling):
        resampling.checkpoint()
        sample = _Sample(
            human, {name: measures[name] for name in sorted(plan.members)}, plan.items, resampling
        )
        correlations += [sample.correlation(name) for name in plan.alone]
        differences += [sample.difference(first, second) for first, second in plan.paired]
    return Correlations(
        sorted(correlations, key=lambda one: one.measure),
        sorted(differences, key=lambda one: (one.first, one.second)),
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
        self, human: Array, measures: Mapping[str, Series], items: Index, resampling: Resampling
    ) -> None:
        columns = [series.values[np.searchsorted(series.items, items)] for series in measures.values()]
        # Resamples must not depend on the order of the items.
        order = np.lexsort([*reversed(columns), human[items]])
        self._human = human[items][order]
        self._columns = {name: column[order] for name, column in zip(measures, columns, strict=True)}
        self._resampling = resampling
        self._total = human.size
        self._taus: dict[str, tuple[float, Array]] = {}
        self._with_human: dict[str, float] = {}

    def correlation(self, name: str) -> MeasureCorrelation:
        count, reason = self._human.size, self._undefined(name)
        if reason:
            return MeasureCorrelation(name, *(absent(reason, count).of(self._total) for _ in range(3)))
        pairs = ScorePairs(self._human, self._columns[name])
        found = self._bootstrap(each(pairs.pearson, pairs.spearman, pairs.kendall))
        self._taus[name] = float(found.point[2]), found.replicates[:, 2]
        estimates = [found.estimate(figure, count, "the scores vary too little") for figure in range(3)]
        return MeasureCorrelation(name, *(estimate.of(self._total) for estimate in estimates))

    def difference(self, first: str, second: str) -> CorrelationDifference:
        self._resampling.checkpoint()
        count, reason = self._human.size, self._undefined(first) or self._undefined(second)
        if reason:
            nothing = absent(reason, count).of(self._total)
            return CorrelationDifference(first, second, nothing, None, nothing)
        t, p = self._williams(first, second)
        (one, ones), (other, others) = self._tau(first), self._tau(second)
        difference = with_percentiles(one - other, count, ones - others, self._resampling.level)
        return CorrelationDifference(first, second, t.of(self._total), p, difference.of(self._total))

    def _williams(self, first: str, second: str) -> tuple[Estimate, float | None]:
        count = self._human.size
        if count < MIN_WILLIAMS_ITEMS:
            return absent(f"{count} items are fewer than {MIN_WILLIAMS_ITEMS}", count), None
        between = pearson(self._columns[first], self._columns[second])
        found = williams_test(self._r(first), self._r(second), between, count)
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

    def _tau(self, name: str) -> tuple[float, Array]:
        """Kendall's tau of a measure with human scores, and its replicates."""
        if name not in self._taus:
            pairs = ScorePairs(self._human, self._columns[name])
            found = self._bootstrap(each(pairs.kendall))
            self._taus[name] = float(found.point[0]), found.replicates[:, 0]
        return self._taus[name]

    def _r(self, name: str) -> float:
        if name not in self._with_human:
            self._with_human[name] = pearson(self._human, self._columns[name])
        return self._with_human[name]

    def _bootstrap(self, statistic: Statistic) -> Bootstrapped:
        return bootstrap(statistic, np.ones(self._human.size, np.intp), self._resampling)
