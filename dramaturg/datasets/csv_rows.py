"""Reads CSV (RFC 4180): a header of field paths, then one request a record. Blank lines are none."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from dramaturg.datasets.columns import TEXTS, Column, assemble, find_columns
from dramaturg.datasets.errors import DatasetError
from dramaturg.datasets.formats import MAX_LINE_BYTES
from dramaturg.datasets.lines import Lines, LineSource, LongLineError
from dramaturg.datasets.records import Record
from dramaturg.datasets.requests import parse_json
from dramaturg.service.errors import Violation

MAX_CELL_LENGTH = 4 << 20
"""The longest cell, in characters."""

_BOOLEANS = {"true": True, "false": False}

# The module has one limit for the whole process (131,072 by default).
csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL_LENGTH))


def read_csv(file: LineSource, message: Descriptor, skip: Callable[[], None]) -> Iterator[Record]:
    """The rows of a file that is open in binary.

    Args:
        file: The file.
        message: The type of the rows.
        skip: Called for each blank line.

    Raises:
        DatasetError: The header is wrong.
    """
    lines = _Text(file)
    records = csv.reader(lines, strict=True)
    columns = _header(records, message, skip)
    while columns:
        first = lines.number + 1
        lines.begin_record()
        try:
            cells = next(records, None)
        except (ValueError, csv.Error) as error:
            yield Record(first, None, Violation("", _described(error)))
            continue
        if cells is None:
            return
        if cells:
            yield _record(first, columns, cells)
        else:
            skip()


class _Text(Iterator[str]):
    """The lines of a file as text. Iteration goes on after a line that is not UTF-8 or too long."""

    def __init__(self, file: LineSource) -> None:
        self._lines = Lines(file)
        self._record_bytes = 0

    @property
    def number(self) -> int:
        return self._lines.number

    def begin_record(self) -> None:
        self._record_bytes = 0

    def __next__(self) -> str:
        line = next(self._lines)
        self._record_bytes += len(line)
        if self._record_bytes > MAX_LINE_BYTES:
            raise LongLineError(MAX_LINE_BYTES)
        return line.decode()


def _header(records: Iterator[list[str]], message: Descriptor, skip: Callable[[], None]) -> list[Column]:
    """The columns. None: there is no header and so no row."""
    names: list[str] = []
    try:
        while (cells := next(records, None)) is not None and not (names := cells):
            skip()
    except (ValueError, csv.Error) as error:
        raise DatasetError(f"has a header that {_described(error)}", 1) from error
    return list(find_columns(names, message))


def _record(line: int, columns: list[Column], cells: list[str]) -> Record:
    if len(cells) != len(columns):
        fault = f"has {len(cells)} cells; the header has {len(columns)}"
        return Record(line, None, Violation("", fault))
    value = assemble(columns, cells, _read)
    return Record(line, None, value) if isinstance(value, Violation) else Record(line, value)


def _read(cell: str, field: FieldDescriptor, is_element: bool) -> Any:
    """What a cell holds. An empty one holds nothing."""
    if not cell:
        return None
    message = field.message_type
    if message is not None and message.full_name in TEXTS and (is_element or not field.is_repeated):
        return cell
    if message is not None or (field.is_repeated and not is_element):
        value = parse_json(cell)
        wanted, name = (list, "list") if field.is_repeated and not is_element else (dict, "object")
        if message is not None and message.GetOptions().map_entry:
            wanted, name = dict, "object"
        if not isinstance(value, wanted):
            raise ValueError(f"is not a JSON {name} but {type(value).__name__}")
        return value
    if field.type == FieldDescriptor.TYPE_BOOL:
        return _BOOLEANS.get(cell.strip().lower(), cell)
    return cell


def _described(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8: {error.reason} at byte {error.start}"
    return f"is not CSV: {error}" if isinstance(error, csv.Error) else str(error)
