"""Cells of summaries: estimates, groups, abstentions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions
from dramaturg.cli.cells import ABSENT, DIGITS, interval, named, number
from dramaturg.cli.tables import Table


def value_cell(found: Estimate, digits: int = DIGITS) -> str:
    """The value of an estimate."""
    return number(found.value if found.HasField("value") else None, digits)


def interval_cell(found: Estimate, digits: int = DIGITS) -> str:
    """The interval of an estimate."""
    known = found.HasField("lower") and found.HasField("upper")
    return interval(found.lower, found.upper, digits) if known else ABSENT


class Grouped(Protocol):
    """The figures of a group."""

    @property
    def tags(self) -> Mapping[str, str]:
        """The group; empty for all samples."""


SomeGrouped = TypeVar("SomeGrouped", bound=Grouped)


def by_grouping(
    options: SummaryOptions, rows: Iterable[SomeGrouped]
) -> Iterator[tuple[Sequence[str], Sequence[SomeGrouped]]]:
    """Yields each grouping's tags in the requested order with its rows, if there are any."""
    listed = list(rows)
    for names in dict.fromkeys(tuple(dict.fromkeys(grouping.tags)) for grouping in options.groupings):
        found = [row for row in listed if set(row.tags) == set(names)]
        if found:
            yield names, found


def group_name(tags: Mapping[str, str]) -> str:
    """A group, for example "level hard, topic (none)"; "all" without tags."""
    return ", ".join(f"{name} {named(value)}" for name, value in sorted(tags.items())) or "all"


def abstention_table(head: str, abstentions: Mapping[str, int], figures: str) -> Table:
    """Abstentions by reason, the most frequent first."""
    table = Table(head, figures=(figures,))
    for reason, count in sorted(abstentions.items(), key=lambda one: (-one[1], one[0])):
        table.add_row(reason, str(count))
    return table
