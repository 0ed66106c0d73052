"""The files of an evaluation: results.jsonl and errors.jsonl, in the order of the rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message

from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_UNKNOWN, StatusCode
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSample, SampleError
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.datasets import Row, sample_id
from dramaturg.datasets.json_lines import LineError, json_objects
from dramaturg.kinds import KINDS
from dramaturg.results.frames import ResultRow, arrow_table, pandas_frame
from dramaturg.results.rows import flatten
from dramaturg.service.errors import ServiceError

if TYPE_CHECKING:
    import pandas
    import pyarrow

RESULTS = "results.jsonl"
"""The file of results: one message a line, such as ``evaluation.v1.ScriptsResult``, in protobuf's JSON."""
ERRORS = "errors.jsonl"
"""The file of the samples that have no result."""


def read_results(path: Path) -> Iterator[RunSample]:
    """Yields the samples of a folder or file: those with a result first, then those that failed.

    Raises:
        LineError: A line is not a result.
        OSError: A file cannot be read.
    """
    results = path / RESULTS if path.is_dir() else path
    count = 0
    for count, (line, record) in enumerate(json_objects(results), start=1):
        yield _succeeded(record, count - 1, results, line)
    errors = results.with_name(ERRORS)
    if errors.is_file():
        for position, (_, record) in enumerate(json_objects(errors)):
            yield _failed(record, count + position)


class FileResults(Iterable[ResultRow]):
    """Judgements of a file of results, which is read anew each time.

    Args:
        path: The folder or file (``dramaturg.results.files.read_results``).
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)

    def __iter__(self) -> Iterator[ResultRow]:
        """The judgements, in order.

        Raises:
            LineError: A line is not a result.
            OSError: The file cannot be read.
        """
        return (ResultRow(row) for row in self._messages())

    def to_arrow(self) -> pyarrow.Table:
        """The judgements as a table.

        Raises:
            ImportError: pyarrow is not installed. The message names the extra.
            LineError: A line is not a result.
            OSError: The file cannot be read.
        """
        return arrow_table(self._messages())

    def to_pandas(self) -> pandas.DataFrame:
        """The judgements as a frame. Errors are those of ``to_arrow``, for pandas too."""
        return pandas_frame(self._messages())

    def _messages(self) -> Iterator[RunResult]:
        return (row for sample in read_results(self._path) for row in flatten(sample))


def _succeeded(record: dict[str, Any], index: int, file: Path, line: int) -> RunSample:
    kind = next((one.results.name for one in KINDS if one.results.json_member in record), None)
    if kind is None:
        raise LineError(file, line, "is not a result of an evaluation")
    sample = RunSample(index=index, line=index + 1, state=run_pb2.SAMPLE_STATE_SUCCEEDED)
    try:
        ParseDict(record, getattr(sample, kind), ignore_unknown_fields=True)
    except ParseError as error:
        raise LineError(file, line, str(error)) from error
    getattr(sample, kind).SetInParent()
    sample.tags.update(getattr(sample, kind).tags)
    return sample


def _failed(record: dict[str, Any], index: int) -> RunSample:
    return RunSample(
        index=int(record.get("index", index)),
        line=int(record.get("line", 0)),
        sample_id=str(record.get("task_id", "")),
        state=run_pb2.SAMPLE_STATE_FAILED,
        tags={str(key): str(value) for key, value in record.get("tags", {}).items()},
        error=SampleError(
            code=_code(record),
            reason=_reason(record),
            message=str(record.get("message", "")),
        ),
    )


def _code(record: dict[str, Any]) -> StatusCode.ValueType:
    known = StatusCode.DESCRIPTOR.values_by_name.get(f"STATUS_CODE_{record.get('code', '')}")
    return STATUS_CODE_UNKNOWN if known is None else StatusCode.ValueType(known.number)


def _reason(record: dict[str, Any]) -> ErrorReason.ValueType:
    known = ErrorReason.DESCRIPTOR.values_by_name.get(f"ERROR_REASON_{record.get('reason', '')}")
    return ErrorReason.ValueType(known.number if known else 0)


class _Line(NamedTuple):
    failed: bool
    text: str


class ResultWriter:
    """Writes to a folder; files of an earlier evaluation there are replaced.

    A result that comes before those of earlier rows waits for them, so at most ``window`` rows are on
    their way at once: memory does not grow with the file. Closing it writes what still waits.

    Args:
        folder: The folder; made where it is not there.
        window: The most rows on their way.

    Raises:
        OSError: The folder cannot be written to.
    """

    def __init__(self, folder: Path, window: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.results_path = folder / RESULTS
        self.errors_path = folder / ERRORS
        self._slots = asyncio.Semaphore(window)
        self._waiting: dict[int, _Line] = {}
        self._next = 0
        # Line by line, so that a process that is killed leaves whole lines.
        self._results = self.results_path.open("w", encoding="utf-8", buffering=1)
        self._errors = self.errors_path.open("w", encoding="utf-8", buffering=1)

    async def admit(self) -> None:
        """Waits until one more row may be on its way."""
        await self._slots.acquire()

    def add_result(self, index: int, result: Message) -> None:
        """Takes the result of the row with this index, from 0."""
        self._add(index, _Line(False, _dump(MessageToDict(result))))

    def add_error(self, index: int, row: Row[Any], error: ServiceError) -> None:
        """Takes the reason why the row with this index, from 0, has no result."""
        described = {
            "index": index,
            "line": row.line,
            "task_id": sample_id(row.request),
            "tags": dict(row.request.tags),
            "code": error.code.name,
            "reason": error.reason_name.removeprefix("ERROR_REASON_"),
            "message": error.message,
            "violations": [violation._asdict() for violation in error.violations],
        }
        self._add(index, _Line(True, _dump(described)))

    def close(self) -> None:
        """Writes what waits, in the order of the rows, and closes the files."""
        self._write([line for _, line in sorted(self._waiting.items())])
        self._waiting.clear()
        self._results.close()
        self._errors.close()

    def _add(self, index: int, line: _Line) -> None:
        self._waiting[index] = line
        ready = []
        while self._next in self._waiting:
            ready.append(self._waiting.pop(self._next))
            self._next += 1
            self._slots.release()
        self._write(ready)

    def _write(self, lines: Sequence[_Line]) -> None:
        for failed, text in lines:
            (self._errors if failed else self._results).write(f"{text}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _dump(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
