"""A file of rows that can be read several times, checked first and then used."""

from __future__ import annotations

import io
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import BinaryIO, Generic, NamedTuple, TypeVar, cast

from google.protobuf.message import Message

from dramaturg.datasets.json_lines import InvalidRow, Row
from dramaturg.datasets.reader import DatasetReader
from dramaturg.datasets.source import STANDARD_INPUT, DatasetError, Format, open_source, spooled
from dramaturg.datasets.tables import as_dataset
from dramaturg.service.errors import Violation

SHOWN = 50
"""The most problems that are listed one by one."""

Request = TypeVar("Request", bound=Message)


class Problem(NamedTuple):
    """A problem of a line, or of the file."""

    line: int
    """The number of the line, from 1. 0: it is about the file as a whole."""
    description: str
    """The field, if there is one, and the problem."""


class RowsError(Exception):
    """Lines that are no valid requests, or a file that cannot be read to its end.

    Attributes:
        problems: The first ones, in order.
        count: How many there are.
    """

    def __init__(self, problems: list[Problem], count: int) -> None:
        lines = [
            f"line {problem.line}: {problem.description}" if problem.line else problem.description
            for problem in problems
        ]
        if count > len(problems):
            lines.append(f"and {count - len(problems)} more")
        super().__init__("\n".join(lines))
        self.problems = problems
        self.count = count


class RowFile(Generic[Request]):
    """The rows of a file, which is read anew each time: none is kept in memory.

    Args:
        file: The file, open in binary, at its start.
        request: The type of request that each row is.
        limit: The number of rows to read. None: all.
        format: How the rows are written.
        filled: Required fields that rows may leave out, because the caller fills them.
    """

    def __init__(
        self,
        file: BinaryIO,
        request: type[Request],
        limit: int | None = None,
        format: Format = Format.JSONL,  # noqa: A002 - the contract's name for it
        filled: Collection[str] = (),
    ) -> None:
        self._file = file
        self._request = request
        self._limit = limit
        self._format = format
        self._filled = filled

    def check(self) -> int:
        """Reads every row; returns how many there are.

        Raises:
            RowsError: One or more lines are no valid requests, or the file cannot be read to its end.
        """
        problems: list[Problem] = []
        rows = count = 0
        try:
            for row in self._read():
                rows += 1
                if isinstance(row, InvalidRow):
                    count += len(row.violations)
                    problems += _described(row.line, row.violations[: SHOWN - len(problems)])
        except DatasetError as error:
            count += 1
            problems.append(Problem(error.line, str(error)))
        if count:
            raise RowsError(problems, count)
        return rows

    def __iter__(self) -> Iterator[Row[Request]]:
        """The rows, in order; the file was checked.

        Raises:
            RowsError: The file was changed meanwhile and is no more what was checked.
        """
        try:
            for row in self._read():
                if isinstance(row, InvalidRow):
                    raise RowsError(_described(row.line, row.violations[:SHOWN]), len(row.violations))
                yield row
        except DatasetError as error:
            raise RowsError([Problem(error.line, str(error))], 1) from error

    def _read(self) -> Iterator[Row[Request] | InvalidRow]:
        self._file.seek(0)
        return iter(
            DatasetReader(self._file, self._request, self._format, row_limit=self._limit, filled=self._filled)
        )


@contextmanager
def open_rows(
    source: str,
    request: type[Request],
    limit: int | None = None,
    format: Format | None = None,  # noqa: A002 - the contract's name for it
    filled: Collection[str] = (),
) -> Iterator[RowFile[Request]]:
    """Opens a file of rows.

    Args:
        source: A path or an address that ``dramaturg.datasets`` opens; "-" is standard input, which is kept
            in a temporary file while it is used.
        request: The type of request that each row is.
        limit: The number of rows to read. None: all.
        format: How the rows are written. None: as ``as_dataset`` tells.
        filled: Required fields that rows may leave out, because the caller fills them.

    Raises:
        OSError: The file cannot be read.
        RowsError: It is not what its name tells, or what its address needs is not installed.
    """
    try:
        with _opened(source) as file, as_dataset(file, source, format) as (rows, form):
            yield RowFile(rows, request, limit, form, filled)
    except DatasetError as error:
        raise RowsError([Problem(error.line, str(error))], 1) from error


def _opened(source: str) -> AbstractContextManager[BinaryIO]:
    if source != STANDARD_INPUT:
        return open_source(source, seekable=True)
    return spooled(cast("BinaryIO", getattr(sys.stdin, "buffer", None) or io.BytesIO()))


def _described(line: int, violations: Sequence[Violation]) -> list[Problem]:
    return [
        Problem(line, f"{field}: {description}" if field else description)
        for field, description in violations
    ]
