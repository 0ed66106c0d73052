"""Majority labels of items with several annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from services.alignment.agreement.annotations import Annotations, Category, Patterns


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
