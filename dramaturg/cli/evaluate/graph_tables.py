"""Tables of measured script graphs."""

from __future__ import annotations

from collections.abc import Iterator

from dramaturg.cli.cells import model_name, named, number
from dramaturg.cli.graphs.tables import SHOWN, add_summary, figures_table
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.summaries.graphs import Figures, GraphsAggregator, Setup

_EDITS = {
    "deleted_events": "V-Del",
    "inserted_events": "V-Ins",
    "replaced_events": "V-Rep",
    "deleted_edges": "E-Del",
    "inserted_edges": "E-Ins",
    "replaced_edges": "E-Rep",
}
"""The edits, as Table 2 of proScript names them."""


def show_graphs(console: Terminal, aggregator: GraphsAggregator) -> None:
    """Prints for each model what became of its graphs, their edges, and their distances."""
    for setup, whole in aggregator.figures():
        print_tables(console, *_of_setup(aggregator, setup, whole))
    if aggregator.missing_figures:
        console.print(f"no figures: {aggregator.missing_figures}", style="yellow")


def _of_setup(aggregator: GraphsAggregator, setup: Setup, whole: Figures) -> Iterator[Table | str]:
    rows = list(_rows(aggregator, setup, whole))
    yield _outcomes(rows, f"{model_name(setup.model)}, {setup.task}")
    if whole.scores is not None:
        yield _edges(rows)
    for mode in whole.counts.distances:
        yield _distances(rows, mode)
    if whole.counts.abstentions:
        yield _abstentions(whole)


def _rows(aggregator: GraphsAggregator, setup: Setup, whole: Figures) -> Iterator[tuple[str, Figures]]:
    yield "all", whole
    for value, figures in aggregator.group_figures(setup):
        yield f"{aggregator.group_by} {named(value)}", figures


def _outcomes(rows: list[tuple[str, Figures]], title: str) -> Table:
    table = figures_table("graphs", "abstained", "cyclic", "cut edges", "dropped", "unmeasured", title=title)
    for name, figures in rows:
        counts = figures.counts
        numbers = (
            counts.graphs,
            counts.abstentions.total(),
            counts.cyclic,
            counts.removed_edges,
            counts.dropped,
            counts.unmeasured,
        )
        table.add_row(name, *map(str, numbers))
    return table


def _edges(rows: list[tuple[str, Figures]]) -> Table:
    table = figures_table("scored", "exact", *SHOWN.values())
    for name, figures in rows:
        if figures.scores is not None:
            add_summary(table, name, figures.scores, micro=name == "all")
    return table


def _distances(rows: list[tuple[str, Figures]], mode: str) -> Table:
    title = f"edit distance, {mode}, mean edits"
    table = figures_table("proven", "distance", *_EDITS.values(), title=title)
    for name, figures in rows:
        if mode in figures.counts.distances:
            sums = figures.counts.distances[mode]
            found = sums.describe()
            mean = number(found["mean"], 2)
            if sums.proven < sums.measured:
                mean = f"{number(found['mean_lower_bound'], 2)}-{mean}"
            edits = [number(found["mean_edits"][edit], 2) for edit in _EDITS]
            table.add_row(name, f"{sums.proven}/{sums.measured}", mean, *edits)
    return table


def _abstentions(whole: Figures) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in whole.counts.abstentions.most_common())
    text = f"abstained because: {reasons}"
    if whole.f1_with_abstentions is not None:
        text += f"; macro F1 with abstentions as 0: {number(whole.f1_with_abstentions)}"
    return text
