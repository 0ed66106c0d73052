"""All figures of some items under every policy, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from services.alignment.accuracy.confusion import AbstentionPolicy
from services.alignment.accuracy.table import FIGURES, SCALES, Outcome, Table
from services.alignment.bootstrap import Array, Bootstrapped, Resampling, bootstrap
from services.alignment.estimates import (
    Estimate,
    absent,
    clustered_proportion,
    mean_of_independent,
    proportion,
)
from services.alignment.jackknife import Scale

MAX_CELLS = 20_000
"""The most cells of the confusion matrices of one group: labels x (labels + 1) x values of the macro tag."""

_NO_ITEMS = "there are no items"
_ALL_ABSTAINED = "every item was abstained from"


@dataclass(frozen=True)
class LabelFigures:
    label: str
    precision: Estimate
    recall: Estimate
    f1: Estimate


@dataclass(frozen=True)
class PolicyFigures:
    """The figures under one policy; see ``PolicyFigures`` in the contract, field by field."""

    policy: AbstentionPolicy
    accuracy: Estimate
    balanced_accuracy: Estimate
    macro_precision: Estimate
    macro_f1: Estimate
    mean_squared_error: Estimate
    macro_mean_squared_error: Estimate
    cohen_kappa: Estimate
    labels: Sequence[LabelFigures]


def policy_figures(
    outcomes: Mapping[Outcome, int], *, clustered: bool, resampling: Resampling
) -> list[PolicyFigures]:
    """Computes the figures under each policy.

    Args:
        outcomes: How many items there are of each kind.
        clustered: Whether the items of one cluster are drawn together, and shares have intervals that say so.
        resampling: How the intervals of figures other than shares are made.
    """
    table = Table(outcomes)
    cells = table.cells.shape[1]
    if not outcomes or cells > MAX_CELLS:
        reason = f"{len(table.labels)} labels are too many" if outcomes else _NO_ITEMS
        nothing = absent(reason).of(sum(outcomes.values()))
        return [_undefined(policy, nothing) for policy in AbstentionPolicy]
    found = bootstrap(table.statistic, table.multiplicities, resampling, width=cells)
    width = found.point.size // len(AbstentionPolicy)
    return [
        _Reading(table, policy, found, index * width, resampling.level, clustered=clustered).figures()
        for index, policy in enumerate(AbstentionPolicy)
    ]


class _Reading:
    """Estimates the metrics of one policy."""

    def __init__(
        self,
        table: Table,
        policy: AbstentionPolicy,
        found: Bootstrapped,
        start: int,
        level: float,
        *,
        clustered: bool,
    ) -> None:
        self._table = table
        self._policy = policy
        self._found = found
        self._start = start
        self._level = level
        self._clustered = clustered
        self._total = table.count(np.ones(table.shape))
        self._counted = table.gold(policy, *range(len(table.labels)))
        self._count = table.count(self._counted)

    def figures(self) -> PolicyFigures:
        labels = [self._label(place, label) for place, label in enumerate(self._table.labels)]
        nothing = "" if self._count else _ALL_ABSTAINED
        unscored = self._unscored()
        accuracy = self._share(self._table.hits(*range(len(labels))), self._counted, _ALL_ABSTAINED)
        return PolicyFigures(
            policy=self._policy,
            accuracy=accuracy.of(self._total),
            balanced_accuracy=self._balanced(labels, nothing),
            macro_precision=self._figure("macro_precision", nothing or _never_predicted(labels)),
            macro_f1=self._figure("macro_f1", nothing),
            mean_squared_error=self._squared_error(accuracy, unscored or nothing),
            macro_mean_squared_error=self._bounded_error(
                "macro_mse", unscored or nothing or "a part was abstained from"
            ),
            cohen_kappa=self._figure("cohen_kappa", nothing or "all labels are equal"),
            labels=labels,
        )

    def _label(self, place: int, label: str) -> LabelFigures:
        table, policy = self._table, self._policy
        hits, gold = table.hits(place), table.gold(policy, place)
        precision = self._share(hits, table.predicted(policy, place), "no item is predicted to have it")
        recall = self._share(hits, gold, "no item has it")
        having = table.count(table.gold(AbstentionPolicy.WRONG, place))
        f1 = self._estimate(len(FIGURES) + place, "no answered item has it, or is predicted to", Scale.SHARE)
        return LabelFigures(label, precision, recall.of(having), f1)

    def _share(self, hits: Array, inside: Array, undefined: str) -> Estimate:
        """The share of hits among the items of the given cells."""
        table = self._table
        if not self._clustered:
            return proportion(table.count(hits), table.count(inside), self._level, undefined=undefined)
        by_cluster = [np.repeat(table.rows(cells), table.multiplicities) for cells in (hits, inside)]
        return clustered_proportion(by_cluster[0], by_cluster[1], self._level, undefined=undefined)

    def _balanced(self, labels: Sequence[LabelFigures], undefined: str) -> Estimate:
        """The mean of the recalls; they are independent where items are, and have Wilson's intervals then."""
        recalls = [one.recall for one in labels if one.recall.value is not None]
        if self._clustered or not recalls:
            return self._figure("balanced_accuracy", undefined)
        return replace(mean_of_independent(recalls), count=self._count).of(self._total)

    def _squared_error(self, accuracy: Estimate, undefined: str) -> Estimate:
        """Of two labels it is the accuracy turned round, in the unit of their distance, with its interval."""
        error, unit = self._bounded_error("mean_squared_error", undefined), self._table.unit
        if error.value is None or unit is None or accuracy.lower is None or accuracy.upper is None:
            return error
        lower, upper = unit * (1 - accuracy.upper), unit * (1 - accuracy.lower)
        return replace(error, lower=lower, upper=upper, interval_method=accuracy.interval_method)

    def _bounded_error(self, name: str, undefined: str) -> Estimate:
        """A squared error, whose interval ends at the largest squared difference of labels."""
        error, largest = self._figure(name, undefined), self._table.largest
        if error.upper is None or largest is None:
            return error
        return replace(error, upper=min(error.upper, largest))

    def _figure(self, name: str, undefined: str) -> Estimate:
        return self._estimate(FIGURES.index(name), undefined, SCALES[name])

    def _estimate(self, figure: int, undefined: str, scale: Scale) -> Estimate:
        place, reason = self._start + figure, undefined or _NO_ITEMS
        return self._found.estimate(place, self._count, reason, scale).of(self._total)

    def _unscored(self) -> str:
        if not self._table.scaled:
            return "labels are not numbers"
        excluded = self._policy is AbstentionPolicy.EXCLUDED
        return "" if excluded else "how far a wrong answer is from the right one is not said"


def _undefined(policy: AbstentionPolicy, nothing: Estimate) -> PolicyFigures:
    return PolicyFigures(policy, nothing, nothing, nothing, nothing, nothing, nothing, nothing, [])


def _never_predicted(labels: Sequence[LabelFigures]) -> str:
    never = next((one.label for one in labels if one.precision.value is None), None)
    return "" if never is None else f"{never!r} is never predicted"
