"""The commands of ``dramaturg research graphs`` on annotations: agreement of graphs, votes, and baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from google.protobuf.json_format import MessageToDict

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1 import graph_service_pb2_grpc as rpc
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.cli.cells import counted, number
from dramaturg.cli.graphs import tables
from dramaturg.cli.graphs.connection import Json, Target, graph_service, run_graphs
from dramaturg.cli.output_files import check_writable, write_json_lines
from dramaturg.cli.platform import output
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import tell_next
from dramaturg.graphs.baselines import MAX_GRAPHS, draw_baselines
from dramaturg.graphs.files import FileError, Row, read_rows
from dramaturg.graphs.loader import Loaded, load, load_row
from dramaturg.graphs.votes import read_votes

app = typer.Typer()

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
        tables.print_json(records)
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
        tables.print_json([_entry(one) for one in selections])
        return
    table = tables.figures_table("agreement", "annotators' graph", "kept")
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
        tables.print_json(_entry(response))
        return
    table = tables.figures_table("better", "equal", "worse", "undecided")
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
