"""Reads the output of the evaluate commands: a folder with results and errors, or one results file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError

from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSample, SampleError

RESULTS, ERRORS = "results.jsonl", "errors.jsonl"

_KINDS = (
    # A member that only this kind of result has, and the name of the result in RunSample.
    ("candidates", "scripts"),
    ("decision", "decision"),
    ("reference", "graphs"),
    ("longer", "texts"),
    ("script", "dialogue"),
)


class ResultsError(ValueError):
    """A line is not a result of an evaluation; the message names the file and the line."""


def read_results(path: Path) -> Iterator[RunSample]:
    """Yields the samples of a folder or file: those with a result first, then those that failed.

    Raises:
        ResultsError: A line is not a result.
        OSError: A file cannot be read.
    """
    results = path / RESULTS if path.is_dir() else path
    count = 0
    for count, (line, record) in enumerate(_records(results), start=1):
        yield _succeeded(record, count - 1, f"{results}:{line}")
    errors = results.with_name(ERRORS)
    if errors.is_file():
        for position, (_, record) in enumerate(_records(errors)):
            yield _failed(record, count + position)


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ResultsError(f"{path}:{number}: is not JSON: {error}") from error
            if not isinstance(record, dict):
                raise ResultsError(f"{path}:{number}: is not a JSON object")
            yield number, record


def _succeeded(record: dict[str, Any], index: int, place: str) -> RunSample:
    kind = next((name for member, name in _KINDS if member in record), None)
    if kind is None:
        raise ResultsError(f"{place}: is not a result of an evaluation")
    sample = RunSample(index=index, line=index + 1, state=run_pb2.SAMPLE_STATE_SUCCEEDED)
    try:
        ParseDict(record, getattr(sample, kind), ignore_unknown_fields=True)
    except ParseError as error:
        raise ResultsError(f"{place}: {error}") from error
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
            code=str(record.get("code", "UNKNOWN")),
            reason=_reason(record),
            message=str(record.get("message", "")),
        ),
    )


def _reason(record: dict[str, Any]) -> ErrorReason.ValueType:
    known = ErrorReason.DESCRIPTOR.values_by_name.get(f"ERROR_REASON_{record.get('reason', '')}")
    return ErrorReason.ValueType(known.number if known else 0)
