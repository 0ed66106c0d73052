"""Writes the judgements of a run as a file, in pieces: memory does not grow with the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from google.protobuf.json_format import MessageToDict

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.datasets.spreadsheet import csv_record
from dramaturg.results.frames import arrow_schema, compact_json, header, table_row

PIECE_BYTES = 256 << 10
"""The approximate size of a piece."""

_ROWS_PER_GROUP = 2000


class ExtraMissingError(RuntimeError):
    """The library of a format is not installed. The message names the extra that provides it."""


def as_json_lines(results: Iterable[RunResult]) -> Iterator[bytes]:
    """One ``RunResult`` per line, in the JSON form of protobuf."""
    return in_pieces(f"{compact_json(MessageToDict(result))}\n".encode() for result in results)


def samples_as_json_lines(samples: Iterable[RunSample]) -> Iterator[bytes]:
    """The result of each sample that has one, one per line, as the evaluate commands write them."""
    return in_pieces(
        f"{compact_json(MessageToDict(getattr(sample, kind)))}\n".encode()
        for sample in samples
        if (kind := sample.WhichOneof("result")) is not None
    )


def as_csv(results: Iterable[RunResult], tags: Sequence[str]) -> Iterator[bytes]:
    """A table (RFC 4180, UTF-8) with a header; absent values are empty cells.

    Args:
        results: The judgements.
        tags: The tags with a column "tags.<name>".
    """
    return in_pieces(_csv_lines(results, tags))


def as_parquet(results: Iterable[RunResult], tags: Sequence[str]) -> Iterator[bytes]:
    """The table of ``as_csv`` as Parquet: typed numbers, and nulls for absent values.

    Args:
        results: The judgements.
        tags: The tags with a column "tags.<name>".

    Raises:
        ExtraMissingError: Immediately: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ExtraMissingError("Parquet needs pyarrow: install the extra dramaturg[datasets]") from error
    return in_pieces(_parquet_groups(pa, pq, results, tags))


def in_pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of a useful size."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield from _split(b"".join(waiting))
            waiting, size = [], 0
    if waiting:
        yield from _split(b"".join(waiting))


def _split(piece: bytes) -> Iterator[bytes]:
    for start in range(0, len(piece), 4 * PIECE_BYTES):
        yield piece[start : start + 4 * PIECE_BYTES]


def _csv_lines(results: Iterable[RunResult], tags: Sequence[str]) -> Iterator[bytes]:
    yield csv_record(header(tags)).encode()
    for result in results:
        yield csv_record(table_row(result, tags)).encode()


def _parquet_groups(pa: Any, pq: Any, results: Iterable[RunResult], tags: Sequence[str]) -> Iterator[bytes]:
    schema = arrow_schema(pa, tags)
    sink = _Sink()
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd") as writer:
        for group in _groups(results):
            rows = [table_row(result, tags) for result in group]
            columns = [
                pa.array([row[place] for row in rows], type=field.type) for place, field in enumerate(schema)
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            yield sink.take()
    yield sink.take()


class _Sink:
    """A file whose written bytes can be taken."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []
        self._position = 0

    def write(self, data: Any) -> int:
        self._written.append(bytes(data))
        self._position += len(self._written[-1])
        return len(self._written[-1])

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Required by pyarrow."""

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        taken = b"".join(self._written)
        self._written = []
        return taken


def _groups(results: Iterable[RunResult]) -> Iterator[Sequence[RunResult]]:
    rest = iter(results)
    while group := list(islice(rest, _ROWS_PER_GROUP)):
        yield group
