"""Reads the rows of an evaluation: JSON Lines of requests, all checked before any is used."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Generic, NamedTuple, NoReturn, TypeVar

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from dramaturg.service.errors import Violation
from dramaturg.service.validation import violations

SHOWN = 50
"""The most problems that are listed one by one."""

Request = TypeVar("Request", bound=Message)

_NESTED = re.compile(r"Failed to parse (\w+) field: ")
_UNKNOWN = re.compile(r'has no field named "(?P<name>.*?)"(?= at |$)')
_AVAILABLE = re.compile(r"Available Fields\(except extensions\): \"\[(?P<names>[^\]]*)\]")


class Row(NamedTuple, Generic[Request]):
    """One request of a file."""

    line: int
    """The number of its line, from 1."""
    request: Request
    """The request."""


class Problem(NamedTuple):
    """What is wrong with a line."""

    line: int
    """The number of the line, from 1."""
    description: str
    """The field, where one is at fault, and what is wrong with it."""


class RowsError(Exception):
    """Lines that are no valid requests.

    Attributes:
        problems: The first ones, in order.
        count: How many there are.
    """

    def __init__(self, problems: list[Problem], count: int) -> None:
        lines = [f"line {problem.line}: {problem.description}" for problem in problems]
        if count > len(problems):
            lines.append(f"and {count - len(problems)} more")
        super().__init__("\n".join(lines))
        self.problems = problems
        self.count = count


class RowFile(Generic[Request]):
    """The rows of a file, which is read anew each time: none is kept in memory.

    Args:
        file: The file, open in binary, at its start.
        request: The type of request that each row is, in protobuf's JSON.
        limit: Only the first so many rows count. None: all.
    """

    def __init__(self, file: BinaryIO, request: type[Request], limit: int | None = None) -> None:
        self._file = file
        self._request = request
        self._limit = limit

    def check(self) -> int:
        """Reads every row; returns how many there are.

        Raises:
            RowsError: One or more lines are no valid requests.
        """
        problems: list[Problem] = []
        rows = count = 0
        for line, text in self._lines():
            rows += 1
            found = [
                f"{field}: {description}" if field else description
                for field, description in _examine(text, self._request)
            ]
            count += len(found)
            problems += [Problem(line, description) for description in found[: SHOWN - len(problems)]]
        if count:
            raise RowsError(problems, count)
        return rows

    def __iter__(self) -> Iterator[Row[Request]]:
        """The rows, in order; the file was checked."""
        for line, text in self._lines():
            yield Row(line, ParseDict(json.loads(text), self._request()))

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, numbered from 1."""
        self._file.seek(0)
        numbered = (
            (number, text.removeprefix(b"\xef\xbb\xbf") if number == 1 else text)
            for number, text in enumerate(self._file, start=1)
        )
        return islice(((number, text) for number, text in numbered if text.strip()), self._limit)


@contextmanager
def open_rows(source: str, request: type[Request], limit: int | None = None) -> Iterator[RowFile[Request]]:
    """Opens a file of rows; "-" is standard input, which is kept in a temporary file while it is used.

    Args:
        source: The file.
        request: The type of request that each row is.
        limit: Only the first so many rows count. None: all.

    Raises:
        OSError: The file cannot be read.
    """
    if source != "-":
        with Path(source).open("rb") as file:
            yield RowFile(file, request, limit)
        return
    with tempfile.TemporaryFile() as kept:
        shutil.copyfileobj(getattr(sys.stdin, "buffer", None) or io.BytesIO(), kept)
        yield RowFile(kept, request, limit)


def _examine(text: bytes, kind: type[Message]) -> Iterator[Violation]:
    """What is wrong with a line; a violation without a field is about the line as a whole."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        yield Violation("", f"is not UTF-8: {error.reason} at byte {error.start}")
    except json.JSONDecodeError as error:
        yield Violation("", f"is not JSON: {error.msg} at character {error.colno}")
    except ValueError as error:
        yield Violation("", f"is not JSON: {error}")
    except RecursionError:
        yield Violation("", "is nested too deeply")
    else:
        if not isinstance(value, dict):
            yield Violation("", f"is not a JSON object but {type(value).__name__}")
            return
        request = kind()
        try:
            ParseDict(value, request)
        except ParseError as error:
            yield _explain(str(error), kind)
        else:
            yield from violations(request)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


@cache
def _place(name: str) -> re.Pattern[str]:
    return re.compile(rf' at "?{name}\.?(?P<path>[\w.\[\]]*)"?\.*$')


def _explain(message: str, kind: type[Message]) -> Violation:
    """The field and the fault in a message of protobuf's JSON parser, which nests the one in the other."""
    nested = _NESTED.findall(message)
    fault = _NESTED.sub("", message)
    available = _AVAILABLE.search(fault)
    fault = fault.partition("\n")[0].rstrip(". ")
    pattern = _place(kind.DESCRIPTOR.name)
    place = pattern.search(fault)
    path = place["path"] if place and place["path"] else ".".join(nested)
    if unknown := _UNKNOWN.search(fault):
        names = available["names"].replace("'", "") if available else ""
        field = f"{path}.{unknown['name']}" if path else unknown["name"]
        return Violation(field, f"there is no such field; there are {names}")
    return Violation(path, pattern.sub("", fault))
