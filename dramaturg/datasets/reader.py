"""Reads a dataset: its rows as requests, and its manifest.

CSV (RFC 4180) has a header of field paths, then one request a record. Blank lines are skipped.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, Generic, TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from dramaturg.datasets.json_lines import InvalidRow, Record, Row, read_json_lines
from dramaturg.datasets.parquet import TEXTS, Column, assemble, find_columns, read_parquet
from dramaturg.datasets.requests import OUT_OF_MEMORY, parse_json, read_request
from dramaturg.datasets.source import (
    CHUNK_BYTES,
    MAX_LINE_BYTES,
    BlankLines,
    BoundedFile,
    DatasetError,
    Format,
    Lines,
    LineSource,
    LongLineError,
    Meter,
    check_row_count,
    count_rows,
    read_to_end,
)
from dramaturg.service.errors import Violation

MAX_CELL_LENGTH = 4 << 20
"""The longest cell, in characters."""

_BOOLEANS = {"true": True, "false": False}
KEPT_ERRORS = 50
"""How many invalid rows a manifest keeps; all are counted."""

Request = TypeVar("Request", bound=Message)

_GZIP = b"\x1f\x8b"
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


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


@dataclass(frozen=True)
class Manifest:
    """The identity and the counts of a dataset."""

    format: Format
    """How it is written."""
    sha256: str
    """The SHA-256 of its bytes as they are kept, compressed or not, in lower-case hexadecimal. With a row
    limit: of the pieces that were read."""
    byte_count: int
    """How many bytes that were."""
    row_count: int
    """How many rows are valid requests."""
    invalid_row_count: int
    """How many are not."""
    errors: tuple[InvalidRow, ...]
    """The first of those; at most ``KEPT_ERRORS``."""


class DatasetReader(Generic[Request]):
    """The rows of a dataset, read once from the current position; one row is in memory at a time.

    JSON Lines and CSV may be compressed with gzip, which their first bytes tell. Parquet needs a file that
    can be read at any place: it is read once for its hash and once for its rows.

    Args:
        file: The file, open in binary.
        request: The type of request that each row is.
        format: How the rows are written.
        row_limit: The number of rows to read, valid or not. None: all.
        filled: Required top-level fields that may be empty here, because the caller fills them.
        max_rows: The most rows of the dataset, valid or not; they are counted before the first is read, which
            needs a seekable file. None: any number. A smaller row limit makes the count unnecessary. The
            dataset may have as many blank lines.
        max_bytes: The most bytes of the dataset, decompressed and decoded. None: any number.

    Raises:
        DatasetError: From the iteration: the dataset cannot be read to its end, or exceeds a limit.
        OSError: From the iteration: the file cannot be read.
    """

    def __init__(
        self,
        file: BinaryIO,
        request: type[Request],
        format: Format,  # noqa: A002 - the contract's name for it
        *,
        row_limit: int | None = None,
        filled: Collection[str] = (),
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self._file = file
        self._request = request
        self._format = format
        self._row_limit = row_limit
        self._filled = filled
        is_bounded = max_rows is None or (row_limit is not None and row_limit <= max_rows)
        self._max_rows = None if is_bounded else max_rows
        self._blank = BlankLines(max_rows)
        self._max_bytes = max_bytes
        self._meter = Meter(file)
        self._row_count = 0
        self._invalid_row_count = 0
        self._errors: list[InvalidRow] = []

    @property
    def manifest(self) -> Manifest:
        """The manifest of the rows read so far; after the iteration, of the whole dataset."""
        return Manifest(
            format=self._format,
            sha256=self._meter.sha256,
            byte_count=self._meter.byte_count,
            row_count=self._row_count,
            invalid_row_count=self._invalid_row_count,
            errors=tuple(self._errors),
        )

    def __iter__(self) -> Iterator[Row[Request] | InvalidRow]:
        """The rows, valid or not, in order."""
        for record in islice(self._records(), self._row_limit):
            # CSV that is not well formed may have more rows than were counted.
            check_row_count(self._row_count + self._invalid_row_count + 1, self._max_rows)
            row = self._examine(record)
            if isinstance(row, Row):
                self._row_count += 1
            else:
                self._invalid_row_count += 1
                if len(self._errors) < KEPT_ERRORS:
                    self._errors.append(row)
            yield row

    def _examine(self, record: Record) -> Row[Request] | InvalidRow:
        if record.fault is not None:
            return InvalidRow(record.line, (record.fault,))
        try:
            found = read_request(record.value, self._request, self._filled)
        except MemoryError:
            return InvalidRow(record.line, (Violation("", OUT_OF_MEMORY),))
        if isinstance(found, Message):
            return Row(record.line, found)
        return InvalidRow(record.line, found)

    def _records(self) -> Iterator[Record]:
        message = cast("Descriptor", self._request.DESCRIPTOR)
        if self._format is Format.PARQUET:
            start = self._file.tell()
            read_to_end(cast("BinaryIO", io.BufferedReader(self._meter, CHUNK_BYTES)))
            self._file.seek(start)
            yield from read_parquet(self._file, message, self._max_rows, self._max_bytes)
            return
        self._check_row_count()
        metered = cast("BinaryIO", io.BufferedReader(self._meter, CHUNK_BYTES))
        file = BoundedFile(unpacked(metered), self._max_bytes)
        line = 0
        skip = self._blank.add
        is_csv = self._format is Format.CSV
        try:
            for record in read_csv(file, message, skip) if is_csv else read_json_lines(file, skip=skip):
                line = record.line
                yield record
        except _DAMAGED as error:
            raise DatasetError(f"is damaged: gzip cannot unpack what follows line {line}: {error}") from error
        read_to_end(metered)

    def _check_row_count(self) -> None:
        if self._max_rows is None:
            return
        start = self._file.tell()
        unmetered = io.BufferedReader(Meter(self._file), CHUNK_BYTES)
        # What is damaged is reported with its line when the rows are read.
        with suppress(*_DAMAGED):
            file = BoundedFile(unpacked(cast("BinaryIO", unmetered)), self._max_bytes)
            check_row_count(count_rows(file, self._format, self._max_rows), self._max_rows)
        self._file.seek(start)


def unpacked(file: BinaryIO) -> BinaryIO:
    """The content of a buffered file, which gzip may have compressed."""
    is_compressed = cast("io.BufferedReader", file).peek(len(_GZIP)).startswith(_GZIP)
    return cast("BinaryIO", gzip.GzipFile(fileobj=file)) if is_compressed else file
