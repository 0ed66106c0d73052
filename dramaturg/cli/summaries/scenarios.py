"""Tables of written scenarios."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from dramaturg.api.evaluation.v1.summary_pb2 import ScenarioFigures, Summary
from dramaturg.cli.cells import model_name
from dramaturg.cli.summaries.cells import abstention_table, group_name, interval_cell, value_cell
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal

BOTH = "both"
"""The name of both options together."""


def show(console: Terminal, summary: Summary) -> None:
    """Prints counts of written, usable, leaking and repeated scenarios, and abstentions."""
    found = summary.scenarios
    print_tables(console, *_tables(found.figures))
    for reason, count in sorted(found.unchecked_briefs_by_reason.items()):
        console.print(f"near-duplicates of {count} briefs are those of equal words: {reason}", style="yellow")
    print_tables(console, abstention_table("abstained because", summary.abstentions_by_reason, "scenarios"))


def _tables(figures: Iterable[ScenarioFigures]) -> Iterator[Table]:
    heads = ("asked", "written", "name an option", "near-duplicates", "usable", "share", "95 %")
    for group, some in groupby(figures, key=lambda one: group_name(one.tags)):
        table = Table("model", "form", "option", figures=heads, title="" if group == "all" else group)
        for one in some:
            table.add_row(
                model_name(one.model),
                one.form,
                one.target or BOTH,
                *(
                    str(count)
                    for count in (
                        one.scenario_count,
                        one.written_count,
                        one.leaking_count,
                        one.duplicate_count,
                        one.usable_count,
                    )
                ),
                value_cell(one.usable_rate),
                interval_cell(one.usable_rate),
            )
        yield table
