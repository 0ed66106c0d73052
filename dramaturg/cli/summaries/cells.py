"""Cells of summaries: estimates, groups, abstentions."""

from __future__ import annotations

from collections.abc import Mapping

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.cli.cells import ABSENT, DIGITS, interval, named, number, percent_interval
from dramaturg.cli.tables import Table


def value_cell(found: Estimate, digits: int = DIGITS) -> str:
    """The value of an estimate."""
    return number(found.value if found.HasField("value") else None, digits)


def share_interval_cell(found: Estimate) -> str:
    """The interval of a share."""
    known = found.HasField("lower") and found.HasField("upper")
    return percent_interval(found.lower, found.upper) if known else ABSENT


def interval_cell(found: Estimate, digits: int = DIGITS) -> str:
    """The interval of an estimate."""
    known = found.HasField("lower") and found.HasField("upper")
    return interval(found.lower, found.upper, digits) if known else ABSENT


def group_name(tags: Mapping[str, str]) -> str:
    """A group, for example "level hard, topic (none)"; "all" without tags."""
    return ", ".join(f"{name} {named(value)}" for name, value in sorted(tags.items())) or "all"


def abstention_table(head: str, abstentions: Mapping[str, int], figures: str) -> Table:
    """Abstentions by reason, the most frequent first."""
    table = Table(head, figures=(figures,))
    for reason, count in sorted(abstentions.items(), key=lambda one: (-one[1], one[0])):
        table.add_row(reason, str(count))
    return table
