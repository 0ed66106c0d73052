"""The connection of the graph commands, and their output."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import grpc
import typer
from google.protobuf.json_format import MessageToDict

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1 import graph_service_pb2_grpc as rpc
from dramaturg.cli.local import service_channel
from dramaturg.cli.options import target_option
from dramaturg.cli.platform import fail, run
from dramaturg.cli.tables import named, number, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.datasets.json_lines import LineError
from dramaturg.graphs.files import FileError
from dramaturg.graphs.scores import FileScores, Loaded
from dramaturg.results.names import value_name
from dramaturg.results.quantities import counted
from dramaturg.service.errors import from_rpc_error
from dramaturg.tables.model import Table, columns

Target = Annotated[str | None, target_option("a gateway or of GraphService")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Result = TypeVar("Result")

_MEASURES = ("precision", "recall", "f1", "iou", "edge_difference", "extra_edges", "missing_edges")
"""The measures, in the order of the JSON."""


@asynccontextmanager
async def graph_service(target: str | None) -> AsyncIterator[rpc.GraphServiceAsyncStub]:
    """A stub of the graph service.

    Args:
        target: Where it runs; ``None`` starts one here.

    Raises:
        UsageError: There is none to be started.
    """
    async with service_channel("graph", target) as channel:
        yield rpc.GraphServiceStub(channel)


def run_graphs(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of a command's calls.

    Raises:
        typer.Exit: 2 with a message: a file is invalid or unreadable, or the service refused or failed.
    """
    try:
        return run(work)
    except (FileError, LineError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}" if error.filename else str(error))
    except grpc.aio.AioRpcError as error:
        fail(from_rpc_error(error).message)


SHOWN = {
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "iou": "IoU",
    "edge_difference": "difference",
}
"""The measures of the table, with their headings; the JSON has all measures."""


def print_json(value: object) -> None:
    """Prints JSON to standard output."""
    json.dump(scores_entry(value) if isinstance(value, FileScores) else value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def scores_entry(scores: FileScores) -> dict[str, Any]:
    """The scores as JSON: the summary's members, ``breakdowns``, ``choices``, and what was left out."""
    response = scores.response
    breakdowns: dict[str, dict[str, Any]] = {}
    for group in response.groups:
        breakdowns.setdefault(group.by, {})[group.value] = _summary_entry(group.summary)
    return {
        **_summary_entry(response.summary),
        "breakdowns": breakdowns,
        "unanswered": scores.unanswered,
        "unasked": scores.unasked,
        "unparsed": scores.unparsed,
        "foreign_ids": scores.foreign,
        "cyclic_references": scores.cyclic,
        "blank_references": scores.blank,
        "notes": scores.notes,
        "choices": {
            "empty_rule": value_name(pb.EmptyRule, response.empty_rule).lower(),
            "orientation": value_name(pb.Orientation, response.orientation).lower(),
            "reduce": response.reduce,
        },
    }


def _summary_entry(summary: pb.ScoreSummary) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "scripts": summary.pair_count,
        "exact_matches": summary.exact_match_count,
        "excluded": summary.excluded_count,
        "unreduced": summary.unreduced_count,
        **_averages_entry(summary),
    }
    if summary.HasField("closure_macro"):
        entry["closure_macro"] = _measures_entry(summary.closure_macro)
        entry["closure_micro"] = _measures_entry(summary.closure_micro)
    return entry


def print_scores(console: Terminal, scores: FileScores) -> None:
    """Prints scores as a table, and what was left out."""
    table = figures_table("scripts", "exact", *SHOWN.values())
    add_summary(table, "all", scores.response.summary)
    for group in scores.response.groups:
        add_summary(table, f"{group.by} {named(group.value)}", group.summary, micro=False)
    print_tables(console, table, *_left_out(scores))


def _left_out(scores: FileScores) -> Iterator[str]:
    for ids, text in (
        (scores.unanswered, "references have no prediction"),
        (scores.unasked, "predictions have no reference and were not scored"),
        (scores.unparsed, "predictions hold no graph and were scored as graphs without edges"),
        (scores.foreign, "predictions share no event id with their reference, so that no edge can be right"),
        (scores.cyclic, "references have a cycle, so that no order of their events is right"),
        (scores.blank, "references have events without text"),
    ):
        if ids:
            yield f"{len(ids)} {text}: {', '.join(ids[:10])}{', ...' if len(ids) > 10 else ''}"
    yield from scores.notes[:20]
    if len(scores.notes) > 20:
        yield f"... and {len(scores.notes) - 20} more notes; --json has them all"


def figures_table(*headings: str, title: str = "") -> Table:
    """A table of figures; its first column names the rows."""
    return Table(title, columns("", figures=headings))


def add_summary(table: Table, name: str, summary: pb.ScoreSummary, *, micro: bool = True) -> None:
    """Adds the macro averages of scores to a table, and the micro averages where they are wanted."""
    for kind, measures in _averages_entry(summary).items():
        if kind == "macro" or micro:
            title = f"{name}, {kind}" if micro else name
            shown = [number(measures[measure] if measures else None) for measure in SHOWN]
            table.add_row(title, str(summary.pair_count), str(summary.exact_match_count), *shown)


def check_entry(loaded: Loaded, report: pb.GraphReport | None) -> dict[str, Any]:
    """A checked graph as JSON; ``report`` is null where there is no graph."""
    found = None
    if report is not None:
        found = MessageToDict(
            report, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
    return {"id": loaded.id, "report": found, "notes": list(loaded.notes)}


def print_reports(console: Terminal, checked: Sequence[tuple[Loaded, pb.GraphReport | None]]) -> None:
    """Prints the report of each graph; well-formed graphs are counted in one line."""
    print_tables(console, *_reported(checked))


def _reported(checked: Sequence[tuple[Loaded, pb.GraphReport | None]]) -> Iterator[str]:
    fine = 0
    for loaded, report in checked:
        problems = [*loaded.notes, *(_problems(report) if report is not None else ["holds no graph"])]
        if not problems and len(checked) > 1:
            fine += 1
            continue
        yield f"{loaded.id}: {_outline(report)}" if report is not None else loaded.id
        yield from (f"  {problem}" for problem in problems)
    if len(checked) > 1:
        yield f"{fine} of {len(checked)} graphs are acyclic, reduced, and have one source and one sink."


def _outline(report: pb.GraphReport) -> str:
    text = f"{counted(report.event_count, 'event')}, {counted(report.edge_count, 'edge')}, "
    text += f"depth {report.depth}, maximum degree {report.max_degree}"
    if report.HasField("timing"):
        bound = "at least " if report.timing.untimed_ids else ""
        text += f", {bound}{report.timing.critical_path_minutes:g} minutes along the critical path"
        text += f" ({bound}{report.timing.total_minutes:g} in all)"
    return text


def _problems(report: pb.GraphReport) -> list[str]:
    found = []
    if not report.acyclic:
        found.append(f"cycle: {' -> '.join([*report.cycle, report.cycle[0]])}")
    if report.shortcut_edges:
        edges = ", ".join(f"{edge.source_id} -> {edge.target_id}" for edge in report.shortcut_edges)
        found.append(f"shortcut edges: {edges}")
    for name, ids, fine in (
        ("sources", report.source_ids, 1),
        ("sinks", report.sink_ids, 1),
        ("unreachable", report.unreachable_ids, 0),
        ("isolated", report.isolated_ids, 0),
        ("not described", report.undeclared_ids, 0),
    ):
        if len(ids) > fine or (fine and not ids):
            found.append(f"{name}: {', '.join(ids) or 'none'}")
    return found


def print_distance(console: Terminal, response: pb.MeasureEditDistanceResponse) -> None:
    """Prints a distance with its edits, and how far it is proven."""
    mode = value_name(pb.DistanceMode, response.mode).lower().replace("_", "-")
    distance = f"distance {response.distance} ({mode})"
    if not response.proven:
        distance = f"distance between {response.lower_bound} and {response.upper_bound} ({mode}, not proven)"
    edits = response.edits
    table = figures_table("deleted", "inserted", "replaced")
    table.add_row("events", *map(str, (edits.deleted_events, edits.inserted_events, edits.replaced_events)))
    table.add_row("edges", *map(str, (edits.deleted_edges, edits.inserted_edges, edits.replaced_edges)))
    print_tables(console, distance, table)


def _measures_entry(measures: pb.EdgeMeasures | pb.EdgeEstimates) -> dict[str, float]:
    """The measures of edges by name; of estimates, their values."""
    values = {measure: getattr(measures, measure) for measure in _MEASURES}
    return {measure: one.value if isinstance(one, Estimate) else one for measure, one in values.items()}


def _averages_entry(summary: pb.ScoreSummary) -> dict[str, dict[str, float] | None]:
    """The measures over all pairs; ``None`` where there is nothing to average."""
    return {
        "macro": _measures_entry(summary.macro) if summary.HasField("macro") else None,
        "micro": _measures_entry(summary.micro) if summary.HasField("micro") else None,
    }
