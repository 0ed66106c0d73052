"""Input of the graph commands: records, or text that the service parses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1 import graph_service_pb2_grpc as rpc
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.graphs.files import FileError, Row, read_rows, read_text
from dramaturg.graphs.records import RecordError, read_record


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
        f"{pb.RepairKind.Name(repair.kind).removeprefix('REPAIR_KIND_').lower()} at {repair.position}: "
        f"{repair.text!r}"
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
