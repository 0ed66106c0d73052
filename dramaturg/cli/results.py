"""Writes results and errors as JSON Lines, in the order of the rows, while they come in any order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from dramaturg.datasets import Row, sample_id
from dramaturg.service.errors import ServiceError

RESULTS = "results.jsonl"
"""The file of results: one message a line, such as ``evaluation.v1.ScriptsResult``, in protobuf's JSON."""
ERRORS = "errors.jsonl"
"""The file of the samples that have no result."""


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
