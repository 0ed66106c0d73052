"""Annotations as arrays of item, annotator and category indices, and majority labels of items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse

from dramaturg.api.alignment.v1 import agreement_pb2 as pb
from services.alignment.bootstrap import Array, Index, group_codes

Category = tuple[str, ...] | float
"""The values of annotations: a sorted set of labels, or a number."""
NUMERIC = {pb.LABEL_DISTANCE_ORDINAL, pb.LABEL_DISTANCE_INTERVAL}
"""The distances of numbers; those of others compare labels, or sets of them."""


@dataclass(frozen=True)
class AnnotatedItem:
    """One item and its category by annotator."""

    categories: Mapping[str, Category]
    """By annotator."""
    group: str = ""
    """Empty: the item is in no group, only among all items."""
    cluster: str = ""
    """Empty: the item is its own cluster."""
    id: str = ""


class Annotations:
    """The annotations of a request.

    Attributes:
        categories: The scale: every category of the request, in order.
        annotators: Every annotator, by name.
        item, annotator, category: Parallel arrays of indices, one element for each annotation.
        groups: The groups, by name.
        items: The items as they were given.
    """

    def __init__(self, items: Sequence[AnnotatedItem]) -> None:
        self.items = items
        self.groups, self._group_of_item = group_codes(item.group for item in items)
        _, self._cluster_of_item = group_codes(item.cluster for item in items)
        self.categories = _sorted({one for item in items for one in item.categories.values()})
        self.annotators = sorted({name for item in items for name in item.categories})
        code = {category: index for index, category in enumerate(self.categories)}
        who = {name: index for index, name in enumerate(self.annotators)}
        triples = [
            (index, who[name], code[category])
            for index, item in enumerate(items)
            for name, category in item.categories.items()
        ]
        columns = np.array(triples, np.intp).reshape(-1, 3)
        self.item, self.annotator, self.category = columns.T.copy()

    def of_group(self, group: str = "") -> Sample:
        """The items of a group; all items for the empty group."""
        chosen = np.ones(self._group_of_item.size, np.bool_)
        if group:
            chosen = self._group_of_item == self.groups.index(group)
        kept = chosen[self.item]
        return Sample(
            categories=self.categories,
            annotators=self.annotators,
            size=int(chosen.sum()),
            item=self.item[kept],
            annotator=self.annotator[kept],
            category=self.category[kept],
            cluster_of_item=self._cluster_of_item,
        )


@dataclass(frozen=True)
class Sample:
    """The annotations of a subset of items; see ``Annotations``."""

    categories: Sequence[Category]
    annotators: Sequence[str]
    size: int
    """How many items there are, with annotations or without."""
    item: Index
    annotator: Index
    category: Index
    cluster_of_item: Index
    """The number of the cluster of every item of the request; -1 for one that is its own cluster."""

    def patterns(self) -> Patterns:
        """The items with annotations; equal items share a row."""
        order = np.lexsort((self.category, self.item))
        item, category = self.item[order], self.category[order]
        starts = np.flatnonzero(np.diff(item, prepend=-1))
        parts = [tuple(part) for part in _parts(category.tolist(), starts.tolist())]
        found = Counter(parts)
        rows = sorted(found)
        places = {row: place for place, row in enumerate(rows)}
        lengths = [len(row) for row in rows]
        counts = sparse.csr_array(
            (
                np.ones(sum(lengths)),
                np.array([code for row in rows for code in row], np.intp),
                np.cumsum([0, *lengths]),
            ),
            shape=(len(rows), len(self.categories)),
        )
        counts.sum_duplicates()
        return Patterns(
            self.categories,
            counts,
            np.array([found[row] for row in rows], np.intp),
            item=item[starts],
            row=np.array([places[part] for part in parts], np.intp),
            cluster=self.cluster_of_item[item[starts]],
        )


@dataclass(frozen=True)
class Patterns:
    """Counts of categories by item, regardless of annotator; equal items share a row."""

    categories: Sequence[Category]
    counts: sparse.csr_array
    """Rows x categories: how many annotators chose each."""
    multiplicities: Index
    """How many items each row represents."""
    item: Index
    """The items, by their number in the request."""
    row: Index
    """The row of each."""
    cluster: Index
    """The number of the cluster of each; -1 for one that is its own cluster."""

    @property
    def totals(self) -> Array:
        """The number of annotations of each row, at least 1."""
        return np.asarray(self.counts.sum(axis=1), np.float64)

    @property
    def squares(self) -> Array:
        """The sum of the squares of each row's counts."""
        return np.asarray(self.counts.power(2).sum(axis=1), np.float64)

    @property
    def pairable(self) -> Patterns:
        """The items with at least two annotations."""
        kept = self.totals >= 2
        inside = kept[self.row]
        return Patterns(
            self.categories,
            self.counts[kept],
            self.multiplicities[kept],
            item=self.item[inside],
            row=(np.cumsum(kept) - 1)[self.row[inside]],
            cluster=self.cluster[inside],
        )

    @property
    def items(self) -> int:
        return int(self.multiplicities.sum())


def _parts(values: list[int], starts: list[int]) -> Iterator[list[int]]:
    for start, end in pairwise([*starts, len(values)]):
        yield values[start:end]


def _sorted(categories: set[Category]) -> list[Category]:
    """In order: numbers by size, sets of labels by their labels; a request has one kind only."""
    return sorted(categories, key=lambda one: (one, ()) if isinstance(one, float) else (0.0, one))


@dataclass(frozen=True)
class MajorityRule:
    plurality: bool = False
    """Whether a unique most frequent label suffices; otherwise more than half is required."""
    tie_label: str = ""
    """The label of undecided items; empty: none."""


MORE_THAN_HALF = MajorityRule()
"""The label of more than half of an item's annotators."""


@dataclass(frozen=True)
class Majority:
    """The majority of one item; see ``ItemMajority`` in the contract."""

    label: str
    """Empty: it is undecided."""
    votes: int
    annotations: int
    by_tie_label: bool


def count_majorities(patterns: Patterns, size: int, rule: MajorityRule) -> Mapping[str, int]:
    """Counts items by their label; those that have none under the empty label.

    Args:
        patterns: The items that have annotations.
        size: How many items there are, with annotations or without.
        rule: How the label is found.
    """
    found: Counter[str] = Counter()
    for majority, multiplicity in zip(_decide(patterns, rule), patterns.multiplicities.tolist(), strict=True):
        found[majority.label] += multiplicity
    if unannotated := size - patterns.items:
        found[""] += unannotated
    return found


def list_majorities(annotations: Annotations, rule: MajorityRule) -> list[Majority]:
    """The label of each item, in their order; one without annotations has none."""
    patterns = annotations.of_group().patterns()
    by_row = list(_decide(patterns, rule))
    majorities = [Majority("", 0, 0, by_tie_label=False)] * len(annotations.items)
    for item, row in zip(patterns.item.tolist(), patterns.row.tolist(), strict=True):
        majorities[item] = by_row[row]
    return majorities


def label_of(category: Category) -> str:
    """A category as one label: a number without needless digits, the labels of a set joined by ``|``."""
    if isinstance(category, float):
        return str(int(category)) if category.is_integer() else repr(category)
    return "|".join(category)


def _decide(patterns: Patterns, rule: MajorityRule) -> Iterator[Majority]:
    counts = patterns.counts
    for start, end in zip(counts.indptr[:-1], counts.indptr[1:], strict=True):
        chosen = counts.data[start:end]
        best, total = int(np.argmax(chosen)), int(chosen.sum())
        votes = int(chosen[best])
        won = int((chosen == votes).sum()) == 1 if rule.plurality else 2 * votes > total
        label = label_of(patterns.categories[counts.indices[start:end][best]]) if won else rule.tie_label
        yield Majority(label, votes, total, by_tie_label=not won and bool(rule.tie_label))
