"""The results of a run as files: exports, in pieces, and reports. Memory does not grow with the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from google.protobuf.json_format import MessageToDict

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.datasets.spreadsheet import csv_record
from dramaturg.report.page import SAMPLES_SHOWN, Heading, render
from dramaturg.results.frames import arrow_schema, compact_json, header, table_row
from dramaturg.results.run_text import state_name
from gateway.runs.records import ACTIVE, RunRecord

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


def write_report(
    run: RunRecord,
    summary: Summary,
    pages: Callable[[], Iterable[Sequence[RunSample]]],
    limit: int = 0,
) -> Iterator[bytes]:
    """The page, in pieces. Memory does not grow with the texts of samples.

    Args:
        run: The run.
        summary: Its figures.
        pages: Reads its samples from the start, in pages.
        limit: The most samples in full. 0: the default of the report.
    """
    samples = chain.from_iterable(pages())
    pieces = render(_heading(run), summary, samples, limit or SAMPLES_SHOWN)
    yield from in_pieces(piece.encode("utf-8", "replace") for piece in pieces)


def _heading(run: RunRecord) -> Heading:
    state = state_name(run.state).lower()
    facts = [
        ("run", run.id),
        ("state", f"{state}: {run.state_reason}" if run.state_reason else state),
        ("created", f"{run.create_time:%Y-%m-%d %H:%M} UTC"),
    ]
    if run.manifest.uri:
        facts.append(("dataset", run.manifest.uri))
    counts = run.counts
    left = counts.left
    if run.state in ACTIVE:
        warning = f"The run has not ended: {left:,} of {counts.samples:,} samples are not done."
    elif left > 0:
        warning = f"The run ended before {left:,} of {counts.samples:,} samples were done."
    else:
        warning = ""
    return Heading(run.spec.display_name or f"Run {run.id}", facts, warning)
