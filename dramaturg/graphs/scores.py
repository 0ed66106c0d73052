"""Input and scores of the graph commands: records or texts, random baselines, one file against another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1 import graph_service_pb2_grpc as rpc
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.graphs.files import FileError, RecordError, Row, read_record, read_rows, read_text
from dramaturg.results.names import value_name


def find_cycle(graph: ScriptGraph) -> Sequence[str]:
    """The ids of the events of a cycle, the first one again at the end. Empty: the graph has no cycle."""
    before: dict[str, list[str]] = {}
    for edge in graph.edges:
        before.setdefault(edge.target_id, []).append(edge.source_id)
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        return [str(event) for event in error.args[1]]
    return ()


@dataclass(frozen=True)
class Loaded:
    """One graph of a file.

    Attributes:
        id: The record's id; the file's name for a file of text.
        graph: The graph; ``None`` where the text holds none.
        notes: What was dropped or repaired, a line each.
        text: The text that was parsed. Empty for a record of events and edges.
    """

    id: str
    graph: ScriptGraph | None
    notes: Sequence[str] = field(default_factory=tuple)
    text: str = ""


async def load(path: Path, service: rpc.GraphServiceAsyncStub) -> list[Loaded]:
    """Reads all graphs of a file: records where it is named ".json" or ".jsonl", else one graph as text.

    Raises:
        FileError: It cannot be read, or a record is no graph.
    """
    if path.suffix in {".json", ".jsonl"}:
        return [await load_row(path, row, service) for row in read_rows(path)]
    return [await _of_text(path.name, read_text(path), service)]


async def load_one(path: Path, row_id: str | None, service: rpc.GraphServiceAsyncStub) -> Loaded:
    """Reads one graph of a file, by its id where there are several.

    Raises:
        FileError: There is no such graph, or several and none was named.
    """
    graphs = await load(path, service)
    chosen = [loaded for loaded in graphs if row_id in {None, loaded.id}]
    if len(chosen) != 1:
        wanted = f"with the id {row_id!r}" if row_id is not None else "; name one with --id"
        raise FileError(f"{path}: has {len(chosen)} graphs {wanted}")
    return chosen[0]


async def load_row(path: Path, row: Row, service: rpc.GraphServiceAsyncStub) -> Loaded:
    """Reads the graph of a record.

    Raises:
        FileError: The record is no graph.
    """
    text = row.record.get("text")
    if isinstance(text, str) and "edges" not in row.record:
        return await _of_text(row.id, text, service)
    try:
        record = read_record(row.record)
    except RecordError as error:
        raise FileError(f"{path}: record {row.id}: {error}") from error
    return Loaded(row.id, record.message(row.id), [f"left out {unread}" for unread in record.unread])


async def _of_text(graph_id: str, text: str, service: rpc.GraphServiceAsyncStub) -> Loaded:
    parsed = await service.ParseGraph(pb.ParseGraphRequest(text=text))
    notes = [
        f"{value_name(pb.RepairKind, repair.kind).lower()} at {repair.position}: {repair.text!r}"
        for repair in parsed.repairs
    ]
    if parsed.repair_count > len(notes):
        notes.append(f"and {parsed.repair_count - len(notes)} more")
    if not parsed.HasField("graph"):
        return Loaded(graph_id, None, notes, text)
    parsed.graph.id = graph_id
    return Loaded(graph_id, parsed.graph, notes, text)


def batches(pairs: Iterable[pb.GraphPair], *, most: int, most_bytes: int) -> Iterator[list[pb.GraphPair]]:
    """Splits pairs so that each batch fits into a request; there is at least one batch."""
    batch: list[pb.GraphPair] = []
    size = 0
    for pair in pairs:
        pair_size = pair.ByteSize()
        if batch and (len(batch) == most or size + pair_size > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(pair)
        size += pair_size
    yield batch


MAX_GRAPHS = 1_000
"""The most graphs or scripts of a request (the contract's limit)."""


async def draw_baselines(
    service: rpc.GraphServiceAsyncStub,
    graphs: Sequence[ScriptGraph],
    kind: pb.BaselineKind.ValueType,
    seed: int,
    edge_probability: float | None = None,
) -> Sequence[ScriptGraph]:
    """Draws one graph for each given one (``GraphService.DrawBaseline``).

    Args:
        service: GraphService.
        graphs: The graphs, each with one source and one sink.
        kind: How a graph is drawn.
        seed: The seed of the draws.
        edge_probability: The probability of an edge before the reduction. None: the service's default.

    Returns:
        The drawn graphs, in order, with the ids of the given ones.
    """
    drawn: list[ScriptGraph] = []
    for start in range(0, len(graphs), MAX_GRAPHS):
        request = pb.DrawBaselineRequest(
            graphs=graphs[start : start + MAX_GRAPHS],
            kind=kind,
            seed=seed,
            edge_probability=edge_probability,
            first_index=start,
        )
        drawn += (await service.DrawBaseline(request)).graphs
    for graph, given in zip(drawn, graphs, strict=True):
        graph.id = given.id
    return drawn


MAX_PAIRS = 1_000
"""The most pairs of a request (the contract's limit)."""
MAX_BYTES = 8 << 20
"""The most bytes of a request's pairs: half of what a server takes."""
COMPUTED = frozenset({"degree", "depth"})
"""What the service can group by without a tag."""


@dataclass(frozen=True)
class FileScores:
    """The scores of a file.

    Attributes:
        response: The scores over all pairs, without those of the single pairs.
        unanswered: The ids of references without a prediction.
        unasked: The ids of predictions without a reference; they are not scored.
        unparsed: The ids of predictions whose text holds no graph; they are scored as graphs without edges.
        foreign: The ids of predictions whose edges share no event id with those of their reference.
        cyclic: The ids of references with a cycle: no order of their events is right.
        blank: The ids of references with an event without text.
        notes: What was left out of predictions and references while they were read.
    """

    response: pb.ScoreEdgesResponse
    unanswered: list[str]
    unasked: list[str]
    unparsed: list[str]
    foreign: list[str]
    cyclic: list[str]
    blank: list[str]
    notes: list[str]


async def score_files(
    service: rpc.GraphServiceAsyncStub,
    predictions: Path,
    references: Path,
    request: pb.ScoreEdgesRequest,
    *,
    missing: str,
) -> FileScores:
    """Scores the predictions that have a reference of the same id.

    Args:
        service: GraphService.
        predictions: The predicted graphs.
        references: The reference graphs.
        request: The settings; its pairs are filled in here.
        missing: For references without a prediction, "skip" or "empty" (scored as a prediction without
            edges).

    Raises:
        FileError: A file cannot be used, or a member to group by is in no record.
    """
    rows = {row.id: row for row in read_rows(references)}
    predicted = {loaded.id: loaded for loaded in await load(predictions, service)}
    wanted = {loaded.id: loaded for loaded in await load(references, service)}
    answered = [row_id for row_id in wanted if row_id in predicted or missing == "empty"]
    tags = [name for name in request.by if name not in COMPUTED]
    for name in tags:
        if all(row.tag(name) is None for row in rows.values()):
            raise FileError(f'{references}: no record has a member "{name}" with a single value')
    pairs = (_pair(row_id, predicted.get(row_id), wanted[row_id], rows[row_id], tags) for row_id in answered)
    response = await score_pairs(service, request, pairs)
    return FileScores(
        response=response,
        unanswered=[row_id for row_id in wanted if row_id not in predicted],
        unasked=[row_id for row_id in predicted if row_id not in wanted],
        unparsed=[row_id for row_id in answered if row_id in predicted and predicted[row_id].graph is None],
        foreign=[
            row_id
            for row_id in answered
            if row_id in predicted and _is_foreign(predicted[row_id].graph, wanted[row_id].graph)
        ],
        cyclic=[row_id for row_id, one in wanted.items() if one.graph is not None and find_cycle(one.graph)],
        blank=[
            row_id
            for row_id, one in wanted.items()
            if one.graph is not None and any(not event.text.strip() for event in one.graph.events)
        ],
        notes=[
            f"{kind} {loaded.id}: {note}"
            for kind, graphs in (("prediction", predicted), ("reference", wanted))
            for loaded in graphs.values()
            for note in loaded.notes
        ],
    )


async def score_pairs(
    service: rpc.GraphServiceAsyncStub, request: pb.ScoreEdgesRequest, pairs: Iterable[pb.GraphPair]
) -> pb.ScoreEdgesResponse:
    """Scores any number of pairs, in parts.

    The last request gets the counts of all parts and sums up, so that sums are exact.

    Args:
        service: GraphService.
        request: The settings; its pairs are filled in here.
        pairs: The pairs, at least one.
    """
    earlier: list[pb.EdgeScore] = []
    *first, last = batches(pairs, most=MAX_PAIRS, most_bytes=MAX_BYTES)
    for batch in first:
        part = pb.ScoreEdgesRequest(pairs=batch, reduce=request.reduce, closure=request.closure)
        for scored in (await service.ScoreEdges(part)).scores:
            scored.ClearField("measures")
            earlier.append(scored)
    whole = pb.ScoreEdgesRequest(pairs=last, scored=earlier, omit_scores=True)
    whole.MergeFrom(request)
    return await service.ScoreEdges(whole)


def _is_foreign(predicted: ScriptGraph | None, reference: ScriptGraph | None) -> bool:
    """Whether two graphs have edges, between events of different ids alone."""
    ends = [
        {end for edge in graph.edges for end in (edge.source_id, edge.target_id)}
        if graph is not None
        else set()
        for graph in (predicted, reference)
    ]
    return all(ends) and not ends[0] & ends[1]


def _pair(
    row_id: str, predicted: Loaded | None, reference: Loaded, row: Row, tags: list[str]
) -> pb.GraphPair:
    """A pair with its edges alone: events without edges do not count."""
    guess = predicted.graph if predicted is not None else None
    return pb.GraphPair(
        id=row_id,
        predicted=ScriptGraph(edges=guess.edges if guess is not None else ()),
        reference=ScriptGraph(edges=reference.graph.edges if reference.graph is not None else ()),
        tags={name: tag for name in tags if (tag := row.tag(name)) is not None},
    )
