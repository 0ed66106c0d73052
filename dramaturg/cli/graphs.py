"""The commands of ``dramaturg research graphs``: metrics, agreement, votes, selection, baselines."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from google.protobuf.json_format import MessageToDict, MessageToJson

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1 import graph_service_pb2_grpc as rpc
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.cli import graph_tables
from dramaturg.cli.graph_tables import Json, Target, graph_service, run_graphs
from dramaturg.cli.lazy_group import RESEARCH, ExternalCommand, LazyGroup
from dramaturg.cli.output_files import check_writable, write_json_lines
from dramaturg.cli.platform import output
from dramaturg.cli.tables import number, print_tables
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.graphs.files import FileError, Row, read_rows, read_votes, to_dot
from dramaturg.graphs.scores import (
    MAX_GRAPHS,
    FileScores,
    Loaded,
    draw_baselines,
    load,
    load_one,
    load_row,
    score_files,
)
from dramaturg.results.quantities import counted

PREDICTION = "dramaturg.commands.graphs"
"""The group of the entry point of the module that has ``predict``."""
NO_PREDICTION = (
    "Predicting comes with the services: install them from a clone of the repository "
    "(pip install -e '.[platform,embeddings]') or use an image."
)
NO_TRAINING = (
    "Training comes with the package dramaturg-research and needs the services: install both from a clone of "
    "the repository (pip install -e '.[platform,embeddings]' -e ./research)."
)


class _Commands(LazyGroup):
    members = (
        ExternalCommand(
            "train",
            RESEARCH,
            "Trains a model that predicts the order of events.",
            NO_TRAINING,
            entry="graphs.train",
        ),
        ExternalCommand(
            "predict",
            PREDICTION,
            'Predicts the edges of scripts, for "dramaturg research graphs score".',
            NO_PREDICTION,
        ),
    )


app = typer.Typer(
    cls=_Commands, help="Checks, draws, scores and compares script graphs.", no_args_is_help=True
)

GraphFile = Annotated[Path, typer.Argument(help="Steps or DOT as text, or records in .json or .jsonl.")]


@app.command()
def score(
    predictions: Annotated[Path, typer.Argument(help="Predicted graphs, .json or .jsonl.")],
    references: Annotated[Path, typer.Argument(help="Reference graphs, .json or .jsonl.")],
    by: Annotated[
        list[str] | None,
        typer.Option(help='Break down by "degree", "depth" or a member of the records; repeatable.'),
    ] = None,
    missing: Annotated[
        Literal["skip", "empty"],
        typer.Option(help="References without a prediction: left out (and counted), or scored as no edges."),
    ] = "skip",
    empty: Annotated[
        Literal["perfect", "zero", "exclude"],
        typer.Option(help="A pair in which neither graph has edges: 1, 0, or left out of the means."),
    ] = "perfect",
    orientation: Annotated[
        Literal["conventional", "as-printed"],
        typer.Option(help="Precision over predicted edges, or over reference edges as printed in the paper."),
    ] = "conventional",
    reduce: Annotated[bool, typer.Option(help="Compare transitive reductions.")] = False,
    closure: Annotated[bool, typer.Option(help="Also compare transitive closures.")] = False,
    json: Json = False,
    target: Target = None,
) -> None:
    """Scores predicted edges: precision, recall, F1, IoU and edge difference, macro and micro."""
    request = pb.ScoreEdgesRequest(
        reduce=reduce,
        closure=closure,
        empty_rule=pb.EmptyRule.Value(f"EMPTY_RULE_{empty.upper()}"),
        orientation=pb.Orientation.Value(f"ORIENTATION_{orientation.upper().replace('-', '_')}"),
        by=dict.fromkeys(["degree", "depth", *(by or [])]),
    )
    result = run_graphs(_score(predictions, references, request, missing, target))
    if json:
        graph_tables.print_json(result)
    else:
        graph_tables.print_scores(output(), result)
    tell_next("research", "graphs", "distance", predictions, references)


@app.command()
def check(file: GraphFile, json: Json = False, target: Target = None) -> None:
    """Checks graphs: cycles, shortcut edges, sources, sinks. Ends with 1 where one has a cycle."""
    checked = run_graphs(_check(file, target))
    if json:
        graph_tables.print_json([graph_tables.check_entry(loaded, report) for loaded, report in checked])
    else:
        graph_tables.print_reports(output(), checked)
    tell_next("research", "graphs", "draw", file)
    if not all(report is not None and report.acyclic for _, report in checked):
        raise typer.Exit(1)


@app.command()
def distance(
    first: GraphFile,
    second: GraphFile,
    mode: Annotated[
        Literal["proscript", "structural", "anchored", "label-free"],
        typer.Option(help="Definition of an edit."),
    ] = "proscript",
    reduce: Annotated[bool, typer.Option(help="Reduce both graphs first.")] = False,
    time_limit: Annotated[float, typer.Option(min=0.01, help="Time limit of the search, in seconds.")] = 10.0,
    record: Annotated[
        str | None, typer.Option("--id", help="Id of the record to compare, where a file has several.")
    ] = None,
    json: Json = False,
    target: Target = None,
) -> None:
    """Measures the graph edit distance, exactly or with bounds where the time is over."""
    request = pb.MeasureEditDistanceRequest(
        mode=pb.DistanceMode.Value(f"DISTANCE_MODE_{mode.upper().replace('-', '_')}"), reduce=reduce
    )
    request.time_limit.FromNanoseconds(round(time_limit * 1e9))
    response = run_graphs(_distance(first, second, request, record, target))
    if json:
        sys.stdout.write(
            MessageToJson(
                response, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
            + "\n"
        )
    else:
        graph_tables.print_distance(output(), response)
    tell_next("research", "graphs", "draw", first)


@app.command()
def draw(
    file: GraphFile,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write. Default: standard output.")
    ] = None,
    record: Annotated[
        str | None, typer.Option("--id", help="Id of the record to draw, where the file has several.")
    ] = None,
    target: Target = None,
) -> None:
    """Draws a graph as SVG through Graphviz's "dot" where it is installed, else as DOT text."""
    drawing = to_dot(run_graphs(_load_graph(file, record, target)))
    program = shutil.which("dot")
    if program is None:
        echo('Graphviz\'s "dot" is not installed; this is DOT text.', err=True)
    else:
        drawing = _render(program, drawing)
    if output is None:
        typer.echo(drawing, nl=False)
    else:
        output.write_text(drawing, encoding="utf-8")
    tell_next("research", "graphs", "check", file)


def _render(program: str, drawing: str) -> str:
    command = [program, "-Tsvg"]
    return subprocess.run(command, input=drawing, capture_output=True, text=True, check=True).stdout  # noqa: S603


async def _score(
    predictions: Path, references: Path, request: pb.ScoreEdgesRequest, missing: str, target: str | None
) -> FileScores:
    async with graph_service(target) as service:
        return await score_files(service, predictions, references, request, missing=missing)


async def _check(file: Path, target: str | None) -> list[tuple[Loaded, pb.GraphReport | None]]:
    async with graph_service(target) as service:
        checked: list[tuple[Loaded, pb.GraphReport | None]] = []
        for loaded in await load(file, service):
            report = None
            if loaded.graph is not None:
                report = (await service.CheckGraph(pb.CheckGraphRequest(graph=loaded.graph))).report
            checked.append((loaded, report))
        return checked


async def _distance(
    first: Path, second: Path, request: pb.MeasureEditDistanceRequest, row_id: str | None, target: str | None
) -> pb.MeasureEditDistanceResponse:
    async with graph_service(target) as service:
        request.first.CopyFrom(_graph(await load_one(first, row_id, service), first))
        request.second.CopyFrom(_graph(await load_one(second, row_id, service), second))
        return await service.MeasureEditDistance(request)


async def _load_graph(file: Path, row_id: str | None, target: str | None) -> ScriptGraph:
    async with graph_service(target) as service:
        return _graph(await load_one(file, row_id, service), file)


def _graph(loaded: Loaded, path: Path) -> ScriptGraph:
    for note in loaded.notes:
        echo(f"{path}: {note}", err=True)
    if loaded.graph is None:
        raise FileError(f"{path}: holds no graph")
    return loaded.graph


Item = TypeVar("Item")

Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="OUT.jsonl", help="File for the graphs, one a line."),
]


class BaselineName(StrEnum):
    """How a random graph is drawn (``graph.v1.BaselineKind``)."""

    PERMUTE_MIDDLE = "permute-middle"
    RANDOM_DAG = "random-dag"
    RANDOM_CHAIN = "random-chain"


@app.command()
def parse(
    file: Annotated[Path, typer.Argument(help='Text, or records with the member "text" (.json, .jsonl).')],
    out: Out = None,
    json: Json = False,
    target: Target = None,
) -> None:
    """Reads graphs from text, for example from answers of models, and lists what was dropped or repaired.

    OUT has a record for each text, which the other commands read. A text without a graph stays as it is:
    "dramaturg research graphs score" scores it as a graph without edges.

    Exit codes: 0 every text has a graph, 1 some have none, 2 wrong usage or records.
    """
    if out is not None:
        check_writable(out)

    async def work() -> Sequence[Loaded]:
        async with graph_service(target) as service:
            return await load(file, service)

    loaded = run_graphs(work())
    records = [_record(one) for one in loaded]
    if out is not None:
        write_json_lines(out, records)
    if json:
        graph_tables.print_json(records)
    else:
        print_tables(output(), *_parsed(loaded))
    tell_next("research", "graphs", "check", out or file)
    if any(one.graph is None for one in loaded):
        raise typer.Exit(1)


@app.command()
def baseline(
    references: Annotated[Path, typer.Argument(help="Reference graphs, .json or .jsonl.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT.jsonl", help="The file for the graphs.")],
    kind: Annotated[BaselineName, typer.Option(help="How a graph is drawn.")] = BaselineName.RANDOM_DAG,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of the draws.")] = 0,
    edge_probability: Annotated[
        float,
        typer.Option(min=0, max=1, help="For random-dag: the probability of an edge before the reduction."),
    ] = 0.7,
    target: Target = None,
) -> None:
    """Draws a random graph over the events of each reference (proScript, Table 1, random).

    Each reference has one source and one sink, which keep their places. Score OUT against the references with
    "dramaturg research graphs score".
    """
    check_writable(out)

    async def work() -> Sequence[ScriptGraph]:
        async with graph_service(target) as service:
            graphs = [_reference(one, references) for one in await load(references, service)]
            return await draw_baselines(
                service,
                graphs,
                pb.BaselineKind.Value(f"BASELINE_KIND_{_constant(kind)}"),
                seed,
                edge_probability,
            )

    drawn = run_graphs(work())
    write_json_lines(out, (graph_record(graph) for graph in drawn))
    print_tables(output(), f"{counted(len(drawn), 'graph')} ({kind}, seed {seed}): {out}")
    tell_next("research", "graphs", "score", out, "REFERENCES")


@app.command()
def agree(
    file: Annotated[
        Path, typer.Argument(help='Records with the member "graphs": one graph of each annotator.')
    ],
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Least agreement (F1 of edges) that keeps a script.")
    ] = 0.65,
    rule: Annotated[
        Literal["best-pair", "mean"],
        typer.Option(help="Agreement of a graph: its highest F1 with another one, or its mean F1 with all."),
    ] = "best-pair",
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Decides between equal graphs.")] = 0,
    out: Out = None,
    json: Json = False,
    target: Target = None,
) -> None:
    """Keeps the scripts whose annotators agree, and one graph of each (proScript, section 4).

    OUT has the kept graphs. The graphs of one script have the same events.
    """
    if out is not None:
        check_writable(out)

    async def work() -> tuple[Sequence[pb.AnnotatedScript], Sequence[pb.Selection]]:
        async with graph_service(target) as service:
            scripts = [await _annotated(file, row, service) for row in read_rows(file)]
            selections: list[pb.Selection] = []
            for part in _batches(scripts):
                request = pb.SelectByAgreementRequest(
                    scripts=part,
                    threshold=threshold,
                    rule=pb.AgreementRule.Value(f"AGREEMENT_RULE_{_constant(rule)}"),
                    seed=seed,
                )
                selections += (await service.SelectByAgreement(request)).selections
            return scripts, selections

    scripts, selections = run_graphs(work())
    kept = [
        script.graphs[selection.graph_index]
        for script, selection in zip(scripts, selections, strict=True)
        if selection.kept
    ]
    if out is not None:
        write_json_lines(out, map(graph_record, kept))
    if json:
        graph_tables.print_json([_entry(one) for one in selections])
        return
    table = graph_tables.figures_table("agreement", "annotators' graph", "kept")
    for one in selections:
        chosen = str(one.graph_index + 1) if one.HasField("graph_index") else "-"
        agreement = number(one.agreement if one.HasField("agreement") else None)
        table.add_row(one.id, agreement, chosen, "yes" if one.kept else "no")
    closing = f"{len(kept)} of {counted(len(scripts), 'script')} reach {threshold:g} ({rule})."
    print_tables(output(), table, closing)
    tell_next("research", "graphs", "check", out or "FILE")


@app.command()
def vote(
    files: Annotated[
        list[Path],
        typer.Argument(help='Sheets (.csv, columns "id" and "vote"), or records with "id" and "votes".'),
    ],
    split: Annotated[
        Literal["undecided", "equal"], typer.Option(help="The result of a comparison without a majority.")
    ] = "undecided",
    json: Json = False,
    target: Target = None,
) -> None:
    """Decides comparisons of two scripts by the majority of their votes (proScript, section 6.3, Figure 7).

    A vote is better, equal, worse or undecided, and is about the first script compared with the second. Votes
    of several files about one id belong together, so each annotator may have a sheet. An empty vote of a
    sheet does not count.
    """

    async def work() -> pb.AggregatePreferencesResponse:
        async with graph_service(target) as service:
            request = pb.AggregatePreferencesRequest(
                comparisons=read_votes(files), split_rule=pb.SplitRule.Value(f"SPLIT_RULE_{_constant(split)}")
            )
            return await service.AggregatePreferences(request)

    response = run_graphs(work())
    if json:
        graph_tables.print_json(_entry(response))
        return
    table = graph_tables.figures_table("better", "equal", "worse", "undecided")
    for one in response.decisions:
        table.add_row(one.id, *_counts(one.votes))
    table.add_row("majority", *_counts(response.counts))
    print_tables(output(), table)
    tell_next("research", "graphs", "agree", "FILE")


async def _annotated(file: Path, row: Row, service: rpc.GraphServiceAsyncStub) -> pb.AnnotatedScript:
    graphs = row.record.get("graphs")
    if not isinstance(graphs, list) or not all(isinstance(one, Mapping) for one in graphs):
        raise FileError(f'{file}: record {row.id}: "graphs" must be a list of graphs')
    if len(graphs) < 2:
        raise FileError(
            f"{file}: record {row.id}: has {counted(len(graphs), 'graph')}; agreement takes two or more"
        )
    loaded = [
        await load_row(file, Row(f"{row.id}, graph {index}", one), service)
        for index, one in enumerate(graphs, start=1)
    ]
    script = pb.AnnotatedScript(id=row.id, graphs=[_reference(one, file) for one in loaded])
    for graph in script.graphs:
        graph.id = row.id
    return script


def _reference(loaded: Loaded, file: Path) -> ScriptGraph:
    if loaded.graph is None:
        raise FileError(f"{file}: record {loaded.id}: has no graph")
    return loaded.graph


def graph_record(graph: ScriptGraph) -> dict[str, Any]:
    """A graph as a record that the commands read."""
    return MessageToDict(graph, preserving_proto_field_name=True)


def _record(loaded: Loaded) -> dict[str, Any]:
    graph = {"text": loaded.text} if loaded.graph is None else graph_record(loaded.graph)
    return {"id": loaded.id, **graph, "notes": list(loaded.notes)}


def _parsed(loaded: Sequence[Loaded]) -> Iterator[str]:
    for one in loaded:
        if one.graph is None:
            yield f"{one.id}: has no graph"
        else:
            events, edges = counted(len(one.graph.events), "event"), counted(len(one.graph.edges), "edge")
            yield f"{one.id}: {events}, {edges}"
        yield from (f"  {note}" for note in one.notes)
    found = sum(one.graph is not None for one in loaded)
    yield f"{found} of {counted(len(loaded), 'text')} {'has' if len(loaded) == 1 else 'have'} a graph."


def _entry(message: pb.Selection | pb.AggregatePreferencesResponse) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def _counts(counts: pb.PreferenceCounts) -> Sequence[str]:
    return [str(one) for one in (counts.better, counts.equal, counts.worse, counts.undecided)]


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + MAX_GRAPHS] for start in range(0, len(items), MAX_GRAPHS))


def _constant(name: str) -> str:
    return name.upper().replace("-", "_")
