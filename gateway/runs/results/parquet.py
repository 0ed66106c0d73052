"""A run's judgements as a Parquet file, row group by row group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from gateway.runs.results.exports import header, in_pieces, table_row

_ROWS_IN_A_GROUP = 2000


class ExtraMissingError(RuntimeError):
    """What writes the format is not installed. The message names the extra that brings it."""


def as_parquet(results: Iterable[RunResult], tags: Sequence[str]) -> Iterator[bytes]:
    """The table of ``as_csv``: numbers as numbers, nulls where there is nothing.

    Args:
        results: The judgements.
        tags: The tags that get a column "tags.<name>" each.

    Raises:
        ExtraMissingError: at once: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ExtraMissingError("Parquet needs pyarrow: install the extra dramaturg[datasets]") from error
    return in_pieces(_write(pa, pq, results, tags))


def _write(pa: Any, pq: Any, results: Iterable[RunResult], tags: Sequence[str]) -> Iterator[bytes]:
    numbers = {"sample_index": pa.uint64(), "value": pa.float64(), "confidence": pa.float64()}
    schema = pa.schema([(name, numbers.get(name, pa.string())) for name in header(tags)])
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
    """A file that hands on what is written to it."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []
        self._position = 0

    def write(self, data: Any) -> int:
        """Takes bytes."""
        self._written.append(bytes(data))
        self._position += len(self._written[-1])
        return len(self._written[-1])

    def tell(self) -> int:
        """How much was written in all."""
        return self._position

    def flush(self) -> None:
        """Does nothing: whoever reads takes what there is."""

    def close(self) -> None:
        """Ends the file."""
        self.closed = True

    def take(self) -> bytes:
        """What was written since the last time."""
        taken = b"".join(self._written)
        self._written = []
        return taken


def _groups(results: Iterable[RunResult]) -> Iterator[Sequence[RunResult]]:
    rest = iter(results)
    while group := list(islice(rest, _ROWS_IN_A_GROUP)):
        yield group
