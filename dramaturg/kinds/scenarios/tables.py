"""Figures of written scenarios (Choice-75, section 2.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from dramaturg.api.evaluation.v1.summary_pb2 import ScenarioFigures, Summary
from dramaturg.tables.common import ranking_lead
from dramaturg.tables.model import (
    SHARES,
    Column,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    name_cell,
    percent,
    percent_of,
    samples_link,
)

show_mean = percent_of


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""
    return ranking_lead(
        summary,
        lambda one: f"writes {percent(one.mean)} of {one.judged_count:,} scenarios usably",
        percent_of,
    )


def sections(summary: Summary) -> Iterator[Section]:
    """Counts of scenarios by model, form and option, by group."""
    found = summary.scenarios
    for tags, some in groupby(found.figures, key=lambda one: sorted(one.tags.items())):
        group = ", ".join(f"{name} {value}" for name, value in tags)
        yield Section(
            f"Scenarios, {group}" if group else "Scenarios",
            [_table(f"Scenarios, {group}" if group else "Scenarios", list(some))],
            "Usable: written, without the name of an option, and no near-duplicate of an earlier scenario.",
        )
    if found.unchecked_briefs_by_reason:
        lines = [
            f"Near-duplicates of {number:,} briefs are those of equal words: {reason}."
            for reason, number in sorted(found.unchecked_briefs_by_reason.items())
        ]
        yield Section("Near-duplicates", lines=lines)


def _table(caption: str, figures: Sequence[ScenarioFigures]) -> Table:
    heads = ("asked", "written", "name an option", "near-duplicates", "usable")
    table = Table(
        f"{caption} by model, form and option",
        columns("model", "form", "option", figures=(*heads, Column("share usable", interval=SHARES))),
    )
    for one in figures:
        table.add_row(
            name_cell(one.model, samples_link(dict(one.tags), model=one.model)),
            one.form,
            one.target or "both",
            count(one.scenario_count),
            count(one.written_count),
            count(one.leaking_count),
            count(one.duplicate_count),
            count(one.usable_count),
            estimate_cell(one.usable_rate, heat=True),
        )
    return table
