"""Tables of measured script graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from dramaturg.api.evaluation.v1.summary_pb2 import DistanceFigures, GraphFigures, Summary
from dramaturg.cli.cells import model_name, number
from dramaturg.cli.graphs.tables import SHOWN, add_summary, figures_table
from dramaturg.cli.summaries.cells import group_name
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.results.graphs import EDIT_NAMES


def show(console: Terminal, summary: Summary) -> None:
    """Prints for each model the outcomes of its graphs, their edges, and their distances."""
    ordered = sorted(summary.graphs.figures, key=_setup)
    for setup, figures in groupby(ordered, key=_setup):
        task, model = setup
        print_tables(console, *_of_setup(f"{model_name(model)}, {task}", list(figures)))


def _setup(one: GraphFigures) -> tuple[str, str]:
    return one.task, one.model


def _of_setup(title: str, rows: Sequence[GraphFigures]) -> Iterator[Table | str]:
    yield _outcomes(rows, title)
    yield _edges(rows)
    for mode in dict.fromkeys(distances.mode for one in rows for distances in one.distances):
        yield _distances(rows, mode)
    for one in rows:
        if not one.tags and one.event_count_mismatch_count:
            yield (
                f"{one.event_count_mismatch_count} of {one.graph_count} graphs have another number of events "
                "than requested"
            )
        if not one.tags and one.unclear_event_count:
            yield f"{one.unclear_event_count} events are not matched clearly by the judge: they are unmatched"
    for one in rows:
        if not one.tags and one.abstentions_by_reason:
            yield _abstentions(one)


def _outcomes(rows: Sequence[GraphFigures], title: str) -> Table:
    table = figures_table("graphs", "abstained", "cyclic", "cut edges", "dropped", "unmeasured", title=title)
    for one in rows:
        numbers = (
            one.graph_count,
            sum(one.abstentions_by_reason.values()),
            one.cyclic_count,
            one.removed_edge_count,
            one.dropped_count,
            one.unmeasured_count,
        )
        table.add_row(group_name(one.tags), *map(str, numbers))
    return table


def _edges(rows: Sequence[GraphFigures]) -> Table:
    table = figures_table("scored", "exact", *SHOWN.values())
    for one in rows:
        if one.HasField("edges"):
            add_summary(table, group_name(one.tags), one.edges, micro=not one.tags)
    return table


def _distances(rows: Sequence[GraphFigures], mode: str) -> Table:
    title = f"edit distance, {mode}, mean edits"
    table = figures_table("matching", "proven", "distance", *EDIT_NAMES.values(), title=title)
    for one in rows:
        for found in one.distances:
            if found.mode == mode:
                edits = [number(found.mean_edits[edit], 2) for edit in EDIT_NAMES]
                proven = f"{found.proven_count}/{found.measured_count}"
                table.add_row(group_name(one.tags), found.matching, proven, _mean(found), *edits)
    return table


def _mean(found: DistanceFigures) -> str:
    mean = number(found.mean, 2)
    if found.proven_count == found.measured_count:
        return mean
    return f"{number(found.mean_lower_bound, 2)}-{mean}"


def _abstentions(one: GraphFigures) -> str:
    ordered = sorted(one.abstentions_by_reason.items(), key=lambda item: (-item[1], item[0]))
    text = f"abstained because: {', '.join(f'{count} {reason}' for reason, count in ordered)}"
    if one.HasField("macro_f1_abstentions_zero"):
        text += f"; macro F1 with abstentions as 0: {number(one.macro_f1_abstentions_zero)}"
    return text
