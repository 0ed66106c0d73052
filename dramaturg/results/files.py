"""The files of an evaluation: results.jsonl and errors.jsonl, in the order of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_UNKNOWN, StatusCode
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSample, SampleError
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.datasets.json_lines import LineError, json_objects
from dramaturg.kinds import KINDS
from dramaturg.results.coverage import failure_name, status_name
from dramaturg.results.frames import ResultRow, arrow_table, compact_json, pandas_frame
from dramaturg.results.rows import flatten

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


class ResultFiles:
    """Writes samples to the files of a folder, which replace earlier ones once they are whole.

    Args:
        folder: The folder.

    Raises:
        OSError: The folder cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        self._paths = (folder / RESULTS, folder / ERRORS)
        self._files = [_unfinished(path).open("w", encoding="utf-8") for path in self._paths]

    def add(self, sample: RunSample, line: int) -> None:
        """Writes the result of a sample, or its failure.

        Args:
            sample: The sample. Those of one evaluation are added in their order.
            line: Its line in the file that was evaluated.
        """
        results, errors = self._files
        if sample.state == run_pb2.SAMPLE_STATE_FAILED:
            errors.write(f"{compact_json(_failure(sample, line))}\n")
            return
        kind = sample.WhichOneof("result")
        assert kind is not None
        results.write(f"{compact_json(MessageToDict(getattr(sample, kind)))}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file, path in zip(self._files, self._paths, strict=True):
            file.close()
            if error is None:
                _unfinished(path).replace(path)
            else:
                _unfinished(path).unlink(missing_ok=True)


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.unfinished")


def _failure(sample: RunSample, line: int) -> dict[str, Any]:
    error = sample.error
    return {
        "index": sample.index,
        "line": line,
        "task_id": sample.sample_id,
        "tags": dict(sorted(sample.tags.items())),
        "code": status_name(error.code),
        "reason": failure_name(error) if error.reason else "UNSPECIFIED",
        "message": error.message,
        "violations": [{"field": error.field, "description": error.message}] if error.field else [],
    }
