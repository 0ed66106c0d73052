"""Reads a dataset: its rows as requests, and its manifest."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, Generic, TypeVar, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from dramaturg.datasets.csv_rows import read_csv
from dramaturg.datasets.errors import DatasetError
from dramaturg.datasets.formats import Format
from dramaturg.datasets.json_lines import read_json_lines
from dramaturg.datasets.limits import BlankLines, BoundedFile, check_row_count, count_rows
from dramaturg.datasets.meter import CHUNK_BYTES, Meter, read_to_end
from dramaturg.datasets.parquet import read_parquet
from dramaturg.datasets.records import Record
from dramaturg.datasets.requests import OUT_OF_MEMORY, read_request
from dramaturg.datasets.rows import InvalidRow, Row
from dramaturg.service.errors import Violation

KEPT_ERRORS = 50
"""How many invalid rows a manifest keeps; all are counted."""

Request = TypeVar("Request", bound=Message)

_GZIP = b"\x1f\x8b"
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


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
