"""Reads a dataset: its rows as requests, and its manifest."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, Generic, TypeVar, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from dramaturg.datasets.csv_rows import read_csv
from dramaturg.datasets.errors import DatasetError
from dramaturg.datasets.formats import Format
from dramaturg.datasets.json_lines import read_json_lines
from dramaturg.datasets.meter import CHUNK_BYTES, Meter, read_to_end
from dramaturg.datasets.parquet import read_parquet
from dramaturg.datasets.records import Record
from dramaturg.datasets.requests import read_request
from dramaturg.datasets.rows import InvalidRow, Row

KEPT_ERRORS = 50
"""How many invalid rows a manifest keeps; all are counted."""

Request = TypeVar("Request", bound=Message)

_GZIP = b"\x1f\x8b"


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
    """The rows of a dataset, read once, from where the file stands; one row is in memory at a time.

    JSON Lines and CSV may be compressed with gzip, which their first bytes tell. Parquet needs a file that
    can be read at any place: it is read once for its hash and once for its rows.

    Args:
        file: The file, open in binary.
        request: The type of request that each row is.
        format: How the rows are written.
        row_limit: The number of rows to read, valid or not. None: all.
        filled: Required top-level fields that may be empty here, because the caller fills them.

    Raises:
        DatasetError: From the iteration: the dataset cannot be read to its end.
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
    ) -> None:
        self._file = file
        self._request = request
        self._format = format
        self._row_limit = row_limit
        self._filled = filled
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
        found = read_request(record.value, self._request, self._filled)
        if isinstance(found, Message):
            return Row(record.line, found)
        return InvalidRow(record.line, found)

    def _records(self) -> Iterator[Record]:
        message = cast("Descriptor", self._request.DESCRIPTOR)
        metered = cast("BinaryIO", io.BufferedReader(self._meter, CHUNK_BYTES))
        if self._format is Format.PARQUET:
            start = self._file.tell()
            read_to_end(metered)
            self._file.seek(start)
            yield from read_parquet(self._file, message)
            return
        compressed = cast("io.BufferedReader", metered).peek(len(_GZIP)).startswith(_GZIP)
        file = cast("BinaryIO", gzip.GzipFile(fileobj=metered)) if compressed else metered
        line = 0
        try:
            for record in read_csv(file, message) if self._format is Format.CSV else read_json_lines(file):
                line = record.line
                yield record
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DatasetError(f"is damaged: gzip cannot unpack what follows line {line}: {error}") from error
        read_to_end(metered)
