"""Scores one file of graphs against another, in as many requests as it takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1 import graph_service_pb2_grpc as rpc
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.graphs.cycles import find_cycle
from dramaturg.graphs.files import FileError, Row, read_rows
from dramaturg.graphs.loader import Loaded, batches, load

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
