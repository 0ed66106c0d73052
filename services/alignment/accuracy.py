"""The accuracy of predicted labels, in groups, with what abstentions count as in the open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import fsum

from services.alignment.errors import too_large
from services.alignment.estimates import Estimate, absent, proportion
from services.alignment.workers import Checkpoint

ALL = "all"
"""The name of the subset that is the whole group."""
MOST_ROWS = 100_000
"""The most groups and confusion cells of one answer, taken together."""


class AbstentionPolicy(Enum):
    """What an abstention counts as."""

    EXCLUDED = "left out"
    WRONG = "a wrong answer"


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
    values: frozenset[str]


@dataclass(frozen=True)
class Question:
    """What is to be measured."""

    items: Counter[Item]
    tags: Sequence[str]
    """The tags that matter: those that any of the following names, in the order of ``Item.tags``."""
    groupings: Sequence[Sequence[str]]
    subsets: Sequence[Subset]
    policy: AbstentionPolicy
    macro_tag: str
    """The tag whose values weigh the same in the macro figure; empty: no such figure."""
    level: float
    """The level of the intervals."""


@dataclass
class Tally:
    """What some items count up to."""

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

    def accuracy(self, policy: AbstentionPolicy, level: float) -> Estimate:
        """The share of right answers under a policy, with Wilson's interval."""
        if policy is AbstentionPolicy.WRONG:
            return proportion(self.correct, self.items, level, undefined="there are no items")
        reason = "every item was abstained from" if self.items else "there are no items"
        return proportion(self.correct, self.answered, level, undefined=reason)

    def majority_baseline(self) -> Estimate:
        """The share of the commonest right label; the same items choose and measure it, so no interval."""
        if not self.items:
            return absent("there are no items")
        return Estimate(max(self.gold.values()) / self.items, self.items)


@dataclass(frozen=True)
class Group:
    """The figures of one part of one group."""

    tags: Mapping[str, str]
    subset: str
    tally: Tally
    accuracy: Estimate
    accuracy_when_answered: Estimate
    accuracy_abstentions_wrong: Estimate
    macro_accuracy: Estimate | None


def measure(question: Question, checkpoint: Checkpoint) -> list[Group]:
    """Measures every group: by grouping, then by tag values, the whole before its subsets.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): the answer would have too many rows.
    """
    groups: list[Group] = []
    rows = 0
    for grouping in question.groupings or [()]:
        for tags, items in _split(question, grouping, checkpoint):
            for subset in (None, *question.subsets):
                checkpoint()
                groups.append(_group(question, tags, subset, items))
                rows += 1 + len(groups[-1].tally.confusion)
                if rows > MOST_ROWS:
                    raise too_large("groups and confusion cells", limit=MOST_ROWS, actual=rows)
    return groups


def _split(
    question: Question, grouping: Sequence[str], checkpoint: Checkpoint
) -> Iterator[tuple[dict[str, str], Counter[Item]]]:
    names = list(dict.fromkeys(grouping))
    places = [question.tags.index(name) for name in names]
    groups: dict[tuple[str, ...], Counter[Item]] = {}
    checkpoint()
    for item, count in question.items.items():
        groups.setdefault(tuple(item.tags[place] for place in places), Counter())[item] = count
    for values, items in sorted(groups.items(), key=lambda group: group[0]):
        yield dict(zip(names, values, strict=True)), items


def _group(question: Question, tags: Mapping[str, str], subset: Subset | None, items: Counter[Item]) -> Group:
    if subset is not None:
        place = question.tags.index(subset.tag)
        items = Counter({item: count for item, count in items.items() if item.tags[place] in subset.values})
    tally = _count(items)
    return Group(
        tags=tags,
        subset=ALL if subset is None else subset.name,
        tally=tally,
        accuracy=tally.accuracy(question.policy, question.level),
        accuracy_when_answered=tally.accuracy(AbstentionPolicy.EXCLUDED, question.level),
        accuracy_abstentions_wrong=tally.accuracy(AbstentionPolicy.WRONG, question.level),
        macro_accuracy=_macro(question, items) if question.macro_tag else None,
    )


def _count(items: Counter[Item]) -> Tally:
    tally = Tally()
    for item, count in items.items():
        tally.add(item, count)
    return tally


def _macro(question: Question, items: Counter[Item]) -> Estimate:
    """The mean over the values of the macro tag; undefined where it is for one of them, which it names."""
    place = question.tags.index(question.macro_tag)
    parts: dict[str, Tally] = {}
    for item, count in items.items():
        parts.setdefault(item.tags[place], Tally()).add(item, count)
    if not parts:
        return absent("there are no items")
    accuracies = {value: tally.accuracy(question.policy, question.level) for value, tally in parts.items()}
    rests_on = sum(accuracy.count for accuracy in accuracies.values())
    missing = sorted(value for value, accuracy in accuracies.items() if accuracy.value is None)
    if missing:
        reason = f"every item whose {question.macro_tag} is {missing[0]!r} was abstained from"
        return absent(reason, rests_on)
    return Estimate(fsum(one.value or 0.0 for one in accuracies.values()) / len(accuracies), rests_on)
