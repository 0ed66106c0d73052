"""All figures of items under every policy, with intervals: overall and by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum

import numpy as np

from dramaturg.api.alignment.v1 import accuracy_pb2 as pb
from dramaturg.api.alignment.v1 import estimate_pb2
from services.alignment.accuracy.confusion import FIGURES, POLICIES, SCALES, Outcome, Table
from services.alignment.bootstrap import Array, Bootstrapped, Resampling, bootstrap
from services.alignment.errors import too_large
from services.alignment.estimates import (
    SAME_ITEMS,
    Estimate,
    Scale,
    absent,
    clustered_proportion,
    mean_of_independent,
    proportion,
)

MAX_CELLS = 20_000
"""The most cells of the confusion matrices of one group: labels x (labels + 1) x values of the macro tag."""

_NO_ITEMS = "there are no items"
_ALL_ABSTAINED = "every item was abstained from"


def policy_figures(
    outcomes: Mapping[Outcome, int], *, clustered: bool, resampling: Resampling
) -> list[pb.PolicyFigures]:
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
        nothing = absent(reason).of(sum(outcomes.values())).encode()
        return [_undefined(policy, nothing) for policy in POLICIES]
    found = bootstrap(table.statistic, table.multiplicities, resampling, width=cells)
    width = found.point.size // len(POLICIES)
    return [
        _Reading(table, policy, found, index * width, resampling.level, clustered=clustered).figures()
        for index, policy in enumerate(POLICIES)
    ]


class _Reading:
    """Estimates the metrics of one policy."""

    def __init__(
        self,
        table: Table,
        policy: pb.AbstentionPolicy.ValueType,
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

    def figures(self) -> pb.PolicyFigures:
        recalls = [self._recall(place) for place in range(len(self._table.labels))]
        labels = [self._label(place, recall) for place, recall in enumerate(recalls)]
        nothing = "" if self._count else _ALL_ABSTAINED
        unscored = self._unscored()
        accuracy = self._share(self._table.hits(*range(len(labels))), self._counted, _ALL_ABSTAINED)
        return pb.PolicyFigures(
            policy=self._policy,
            accuracy=accuracy.of(self._total).encode(),
            balanced_accuracy=self._balanced(recalls, nothing).encode(),
            macro_precision=self._figure("macro_precision", nothing or _never_predicted(labels)).encode(),
            macro_f1=self._figure("macro_f1", nothing).encode(),
            mean_squared_error=self._squared_error(accuracy, unscored or nothing).encode(),
            macro_mean_squared_error=self._bounded_error(
                "macro_mse", unscored or nothing or "a part was abstained from"
            ).encode(),
            cohen_kappa=self._figure("cohen_kappa", nothing or "all labels are equal").encode(),
            labels=labels,
        )

    def _recall(self, place: int) -> Estimate:
        table = self._table
        recall = self._share(table.hits(place), table.gold(self._policy, place), "no item has it")
        return recall.of(table.count(table.gold(pb.ABSTENTION_POLICY_WRONG, place)))

    def _label(self, place: int, recall: Estimate) -> pb.LabelFigures:
        table = self._table
        predicted = table.predicted(self._policy, place)
        precision = self._share(table.hits(place), predicted, "no item is predicted to have it")
        f1 = self._estimate(len(FIGURES) + place, "no answered item has it, or is predicted to", Scale.SHARE)
        return pb.LabelFigures(
            label=table.labels[place],
            precision=precision.encode(),
            recall=recall.encode(),
            f1=f1.encode(),
        )

    def _share(self, hits: Array, inside: Array, undefined: str) -> Estimate:
        """The share of hits among the items of the given cells."""
        table = self._table
        if not self._clustered:
            return proportion(table.count(hits), table.count(inside), self._level, undefined=undefined)
        by_cluster = [np.repeat(table.rows(cells), table.multiplicities) for cells in (hits, inside)]
        return clustered_proportion(by_cluster[0], by_cluster[1], self._level, undefined=undefined)

    def _balanced(self, recalls: Sequence[Estimate], undefined: str) -> Estimate:
        """The mean of the recalls; they are independent where items are, and have Wilson's intervals then."""
        defined = [one for one in recalls if one.value is not None]
        if self._clustered or not defined:
            return self._figure("balanced_accuracy", undefined)
        return replace(mean_of_independent(defined), count=self._count).of(self._total)

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
        excluded = self._policy == pb.ABSTENTION_POLICY_EXCLUDED
        return "" if excluded else "how far a wrong answer is from the right one is not said"


def _undefined(policy: pb.AbstentionPolicy.ValueType, nothing: estimate_pb2.Estimate) -> pb.PolicyFigures:
    return pb.PolicyFigures(
        policy=policy,
        accuracy=nothing,
        balanced_accuracy=nothing,
        macro_precision=nothing,
        macro_f1=nothing,
        mean_squared_error=nothing,
        macro_mean_squared_error=nothing,
        cohen_kappa=nothing,
    )


def _never_predicted(labels: Sequence[pb.LabelFigures]) -> str:
    never = next((one.label for one in labels if not one.precision.HasField("value")), None)
    return "" if never is None else f"{never!r} is never predicted"


ALL = "all"
"""The name of the subset that is the whole group."""
MAX_ROWS = 100_000
"""The most groups and confusion cells of one answer, taken together."""


@dataclass(frozen=True)
class Item:
    """One item; equal ones are counted together."""

    gold: str
    predicted: str
    """Empty: an abstention."""
    abstain_reason: str
    tags: tuple[str, ...]
    """The values of the tags that matter, in their order, empty where the item has none."""


@dataclass(frozen=True)
class Subset:
    """A named part of a group: the items with one of some values of a tag."""

    name: str
    tag: str
    values: Sequence[str]


@dataclass(frozen=True)
class Design:
    items: Counter[Item]
    tags: Sequence[str]
    """The tags that matter: those that any of the following names, in the order of ``Item.tags``."""
    groupings: Sequence[Sequence[str]]
    subsets: Sequence[Subset]
    policy: pb.AbstentionPolicy.ValueType
    macro_tag: str
    """The tag whose values weigh the same in the macro figure; empty: no such figure."""
    resampling: Resampling
    """How intervals are made."""
    cluster_tag: str = ""
    """The tag whose values are drawn as wholes; empty: each item is its own cluster."""


@dataclass
class AnswerCounts:
    """Counts over a set of items."""

    items: int = 0
    answered: int = 0
    correct: int = 0
    gold: Counter[str] = field(default_factory=Counter)
    abstentions: Counter[str] = field(default_factory=Counter)
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, item: Item, count: int) -> None:
        """Counts an item ``count`` times."""
        self.items += count
        self.gold[item.gold] += count
        self.confusion[item.gold, item.predicted] += count
        if item.predicted:
            self.answered += count
            self.correct += count * (item.predicted == item.gold)
        else:
            self.abstentions[item.abstain_reason] += count

    def accuracy(self, policy: pb.AbstentionPolicy.ValueType, level: float) -> Estimate:
        """The accuracy under a policy, with Wilson's interval."""
        if policy != pb.ABSTENTION_POLICY_EXCLUDED:
            return proportion(self.correct, self.items, level, undefined="there are no items").of(self.items)
        reason = "every item was abstained from" if self.items else "there are no items"
        return proportion(self.correct, self.answered, level, undefined=reason).of(self.items)

    def majority_baseline(self) -> Estimate:
        """The share of the commonest right label; the same items choose and measure it, so no interval."""
        if not self.items:
            return absent("there are no items")
        return Estimate(max(self.gold.values()) / self.items, self.items, withheld=SAME_ITEMS)


def measure(design: Design) -> list[pb.AccuracyGroup]:
    """Measures every group: by grouping, then by tag values, the whole before its subsets.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): the answer would have too many rows.
    """
    groups: list[pb.AccuracyGroup] = []
    rows = 0
    for grouping in design.groupings or [()]:
        for tags, items in _split(design, grouping):
            for subset in (None, *design.subsets):
                design.resampling.checkpoint()
                groups.append(_group(design, tags, subset, items))
                rows += 1 + len(groups[-1].confusion)
                if rows > MAX_ROWS:
                    raise too_large("groups and confusion cells", limit=MAX_ROWS, actual=rows)
    return groups


def _split(design: Design, grouping: Sequence[str]) -> Iterator[tuple[dict[str, str], Counter[Item]]]:
    names = list(dict.fromkeys(grouping))
    places = [design.tags.index(name) for name in names]
    groups: dict[tuple[str, ...], Counter[Item]] = {}
    design.resampling.checkpoint()
    for item, count in design.items.items():
        groups.setdefault(tuple(item.tags[place] for place in places), Counter())[item] = count
    for values, items in sorted(groups.items(), key=lambda group: group[0]):
        yield dict(zip(names, values, strict=True)), items


def _group(
    design: Design, tags: Mapping[str, str], subset: Subset | None, items: Counter[Item]
) -> pb.AccuracyGroup:
    missing: Sequence[str] = ()
    if subset is not None:
        place, wanted = design.tags.index(subset.tag), frozenset(subset.values)
        items = Counter({item: count for item, count in items.items() if item.tags[place] in wanted})
        found = {item.tags[place] for item in items}
        missing = [value for value in subset.values if value not in found]
    counts = _count(items)
    policies = policy_figures(
        _outcomes(design, items), clustered=bool(design.cluster_tag), resampling=design.resampling
    )
    accuracies = {one.policy: one.accuracy for one in policies}
    if not design.cluster_tag:
        level = design.resampling.level
        accuracies = {policy: counts.accuracy(policy, level).encode() for policy in POLICIES}
    for one in policies:
        one.accuracy.CopyFrom(accuracies[one.policy])
        if not design.macro_tag:
            one.ClearField("macro_mean_squared_error")
    return pb.AccuracyGroup(
        tags=tags,
        subset=ALL if subset is None else subset.name,
        subset_values=() if subset is None else subset.values,
        missing_values=missing,
        cluster_count=len({_value(design, design.cluster_tag, item) for item in items} - {""}),
        item_count=counts.items,
        answered_count=counts.answered,
        correct_count=counts.correct,
        abstentions=counts.abstentions,
        accuracy=accuracies[design.policy],
        accuracy_when_answered=accuracies[pb.ABSTENTION_POLICY_EXCLUDED],
        accuracy_abstentions_wrong=accuracies[pb.ABSTENTION_POLICY_WRONG],
        macro_accuracy=_macro(design, items).encode() if design.macro_tag else None,
        majority_baseline=counts.majority_baseline().encode(),
        confusion=[
            pb.ConfusionCell(gold=gold, predicted=predicted, count=count)
            for (gold, predicted), count in sorted(counts.confusion.items())
        ],
        policies=policies,
    )


def _outcomes(design: Design, items: Counter[Item]) -> Counter[Outcome]:
    outcomes: Counter[Outcome] = Counter()
    for item, count in items.items():
        macro, cluster = (_value(design, tag, item) for tag in (design.macro_tag, design.cluster_tag))
        outcomes[Outcome(item.gold, item.predicted, macro, cluster)] += count
    return outcomes


def _value(design: Design, tag: str, item: Item) -> str:
    """An item's value of a tag; empty where it has none, or where no tag is named."""
    return item.tags[design.tags.index(tag)] if tag else ""


def _count(items: Counter[Item]) -> AnswerCounts:
    counts = AnswerCounts()
    for item, count in items.items():
        counts.add(item, count)
    return counts


def _macro(design: Design, items: Counter[Item]) -> Estimate:
    """The mean over the values of the macro tag; undefined where it is for one of them, which it names."""
    place = design.tags.index(design.macro_tag)
    parts: dict[str, AnswerCounts] = {}
    for item, count in items.items():
        parts.setdefault(item.tags[place], AnswerCounts()).add(item, count)
    if not parts:
        return absent("there are no items")
    level = design.resampling.level
    accuracies = {value: counts.accuracy(design.policy, level) for value, counts in parts.items()}
    rests_on = sum(accuracy.count for accuracy in accuracies.values())
    missing = sorted(value for value, accuracy in accuracies.items() if accuracy.value is None)
    if missing:
        reason = f"every item whose {design.macro_tag} is {missing[0]!r} was abstained from"
        return absent(reason, rests_on)
    mean = fsum(one.value or 0.0 for one in accuracies.values()) / len(accuracies)
    return Estimate(mean, rests_on, withheld="none is computed; the macro mean squared error has one")
