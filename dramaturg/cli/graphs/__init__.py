"""The commands of ``dramaturg research graphs``: metrics of graphs without an evaluation."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from google.protobuf.json_format import MessageToJson

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.cli.external_commands import RESEARCH, ExternalCommand
from dramaturg.cli.graphs import annotation, tables
from dramaturg.cli.graphs.connection import Json, Target, graph_service, run_graphs
from dramaturg.cli.lazy_group import LazyGroup
from dramaturg.cli.platform import output
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.graphs.dot import to_dot
from dramaturg.graphs.file_scores import FileScores, score_files
from dramaturg.graphs.files import FileError
from dramaturg.graphs.loader import Loaded, load, load_one

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

app.registered_commands.extend(annotation.app.registered_commands)

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
        tables.print_json(result)
    else:
        tables.print_scores(output(), result)
    tell_next("research", "graphs", "distance", predictions, references)


@app.command()
def check(file: GraphFile, json: Json = False, target: Target = None) -> None:
    """Checks graphs: cycles, shortcut edges, sources, sinks. Ends with 1 where one has a cycle."""
    checked = run_graphs(_check(file, target))
    if json:
        tables.print_json([tables.check_entry(loaded, report) for loaded, report in checked])
    else:
        tables.print_reports(output(), checked)
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
        tables.print_distance(output(), response)
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
