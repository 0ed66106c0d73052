"""Figures of written scenarios (Choice-75, section 2.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from dramaturg.api.evaluation.v1.summary_pb2 import ScenarioFigures, Summary
from dramaturg.report.figures.common import percent_of, ranking_lead
from dramaturg.report.tables import (
    SHARE,
    Cell,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    interval_cell,
    name_cell,
    percent,
    samples_link,
)

show_mean = percent_of


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""
    return ranking_lead(
        summary, lambda one: f"writes {percent(one.mean)} of {one.judged_count:,} scenarios usably", percent
    )


def sections(summary: Summary) -> Iterator[Section]:
    """Counts of scenarios by model, form and option, by group."""
    found = summary.scenarios
    for tags, some in groupby(found.figures, key=lambda one: sorted(one.tags.items())):
        group = ", ".join(f"{name} {value}" for name, value in tags)
        yield Section(
            f"Scenarios, {group}" if group else "Scenarios",
            [_table(list(some))],
            "Usable: written, without the name of an option, and no near-duplicate of an earlier scenario.",
        )
    if found.unchecked_briefs_by_reason:
        lines = [
            f"Near-duplicates of {number:,} briefs are those of equal words: {reason}."
            for reason, number in sorted(found.unchecked_briefs_by_reason.items())
        ]
        yield Section("Near-duplicates", lines=lines)


def _table(figures: Sequence[ScenarioFigures]) -> Table:
    rows = [
        [
            name_cell(one.model, samples_link(dict(one.tags), model=one.model)),
            Cell(one.form),
            Cell(one.target or "both"),
            count(one.scenario_count),
            count(one.written_count),
            count(one.leaking_count),
            count(one.duplicate_count),
            count(one.usable_count),
            estimate_cell(one.usable_rate, heat=True),
            interval_cell(one.usable_rate, SHARE, percent_of),
        ]
        for one in figures
    ]
    heads = ("asked", "written", "name an option", "near-duplicates", "usable", "share usable")
    return Table(
        "Scenarios by model, form and option",
        columns("model", "form", "option", figures=(*heads, "95 % interval, 0 to 100 %")),
        rows,
        heads=3,
    )
