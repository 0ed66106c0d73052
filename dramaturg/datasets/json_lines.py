"""The rows of a dataset, and rows of JSON Lines: one JSON value a line. Blank lines are skipped.

``read_json_lines`` yields the fault of a line in place of its value. ``json_values`` and ``json_objects``
read a file by its path and stop at the first invalid line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from google.protobuf.message import Message

from dramaturg.datasets.requests import OUT_OF_MEMORY, parse_json
from dramaturg.datasets.source import BYTE_ORDER_MARK, MAX_LINE_BYTES, Lines, LineSource, LongLineError
from dramaturg.service.errors import Violation

Request = TypeVar("Request", bound=Message)

_SUBJECTS = ("task", "decision", "script", "reference")


class Record(NamedTuple):
    """One row."""

    line: int
    """The number of the line on which it begins, of Parquet that of the row; from 1."""
    value: Any
    """Its value in the shape of protobuf's JSON. Nothing where there is a fault."""
    fault: Violation | None = None
    """Why it has no value."""


class Row(NamedTuple, Generic[Request]):
    """One request of a dataset."""

    line: int
    """The number of the line on which it begins, of Parquet that of the row; from 1."""
    request: Request
    """The request."""


class InvalidRow(NamedTuple):
    """A row that is no valid request."""

    line: int
    """As a row's."""
    violations: Sequence[Violation]
    """The violations, at least one; one without a field is about the row as a whole."""


def sample_id(request: Any) -> str:
    """The id of the subject of a request, such as its task, or its own. May be empty."""
    fields = request.DESCRIPTOR.fields_by_name
    # A request may have a field of the name that is no message, such as the task of a graph's evaluation.
    parts = (getattr(request, name) for name in _SUBJECTS if name in fields and fields[name].message_type)
    found: str = next((part.id for part in parts), "") or getattr(request, "id", "")
    return found


MAX_VALUE_BYTES = 4 * MAX_LINE_BYTES
"""The longest line of ``json_values``, in bytes: a result is longer as JSON than as a message."""


class LineError(ValueError):
    """A line of a file is invalid. The message is ``FILE: line N: PROBLEM``.

    Attributes:
        file: The file's path.
        line: The number of the line, from 1. 0: the error is about the file as a whole.
        problem: What is wrong.
    """

    def __init__(self, file: Path | str, line: int, problem: str) -> None:
        super().__init__(f"{file}: line {line}: {problem}" if line else f"{file}: {problem}")
        self.file = str(file)
        self.line = line
        self.problem = problem


def read_json_lines(
    file: LineSource, max_line_bytes: int = MAX_LINE_BYTES, skip: Callable[[], None] = lambda: None
) -> Iterator[Record]:
    """The rows of a file that is open in binary.

    Args:
        file: The file.
        max_line_bytes: The longest line, in bytes. A longer one is invalid.
        skip: Called for each blank line.
    """
    lines = Lines(file, max_line_bytes)
    while True:
        try:
            text = next(lines, None)
            if text is None:
                return
            if text.strip():
                yield Record(lines.number, parse_json(text))
            else:
                skip()
        except (LongLineError, ValueError) as error:
            yield Record(lines.number, None, Violation("", str(error)))
        except MemoryError:
            yield Record(lines.number, None, Violation("", OUT_OF_MEMORY))


def json_values(file: Path) -> Iterator[tuple[int, Any]]:
    """The values of a file of JSON Lines, each with the number of its line, from 1.

    Raises:
        LineError: A line is not JSON or is too long.
        OSError: The file cannot be read.
    """
    with file.open("rb") as opened:
        for line, value, fault in read_json_lines(opened, MAX_VALUE_BYTES):
            if fault is not None:
                raise LineError(file, line, fault.description)
            yield line, value


def json_objects(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON Lines, each with the number of its line, from 1.

    Raises:
        LineError: A line is not a JSON object.
        OSError: The file cannot be read.
    """
    for line, value in json_values(file):
        if not isinstance(value, dict):
            raise LineError(file, line, f"is not a JSON object but {type(value).__name__}")
        yield line, value


def json_document(file: Path) -> Any:
    """The value of a file that is one JSON document.

    Raises:
        LineError: The file is not JSON.
        OSError: The file cannot be read.
    """
    try:
        return parse_json(file.read_bytes().removeprefix(BYTE_ORDER_MARK))
    except ValueError as error:
        raise LineError(file, 0, str(error)) from error


def json_array_or_lines(file: Path) -> list[tuple[int, Any]]:
    """The elements of a JSON array, or the values of JSON Lines, each with its position or line, from 1.

    Raises:
        LineError: The file is neither.
        OSError: The file cannot be read.
    """
    if first_character(file) == "[":
        return list(enumerate(json_document(file), start=1))
    return list(json_values(file))


def first_character(file: Path) -> str:
    """The first character of a file that is not blank; empty for a blank file.

    Raises:
        OSError: The file cannot be read.
    """
    with file.open("rb") as opened:
        opened.seek(len(BYTE_ORDER_MARK) if opened.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else 0)
        while piece := opened.read(1 << 12):
            if text := piece.strip():
                return chr(text[0])
    return ""
