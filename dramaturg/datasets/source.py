"""Opens datasets by path, ``file://`` address, or address of an object store; their formats and bounds.

The bytes that are read are counted and hashed. The errors are those of a dataset as a whole.
"""

from __future__ import annotations

import errno
import hashlib
import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Protocol, cast
from urllib.parse import unquote, urlsplit

EXTRA = "dramaturg[datasets]"
"""The extra that brings what reads Parquet and object stores."""


class DatasetError(Exception):
    """A dataset that cannot be read to its end, e.g. because of a wrong header or a damaged file.

    The message is a predicate whose subject is the dataset, e.g. "is damaged: ...".

    Attributes:
        line: The number of the line at fault, from 1. 0: it is about the file as a whole.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class DatasetLimitError(DatasetError):
    """A dataset that has more than a limit allows."""


def missing(what: str, package: str) -> DatasetError:
    """The error where an optional package is not installed."""
    return DatasetError(f'is {what}, which needs {package}: pip install "{EXTRA}"')


MAX_LINE_BYTES = 16 << 20
"""The longest line of JSON Lines or CSV, in bytes; it is also the largest request that a server takes."""


class Format(StrEnum):
    """How the rows of a dataset are written (``evaluation.v1.DatasetFormat``)."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


_ENDS = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
}
ENDS = tuple(_ENDS)
"""The ends of names that tell the format."""


def format_of(name: str) -> Format | None:
    """The format that the end of a name tells, such as ".csv" or ".csv.gz". None: it tells none."""
    name = name.casefold()
    compressed = name.endswith(".gz")
    found = next((form for end, form in _ENDS.items() if name.removesuffix(".gz").endswith(end)), None)
    # Parquet compresses by itself; as a whole it could not be read piece by piece.
    return None if compressed and found is Format.PARQUET else found


BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LineSource(Protocol):
    """A file of lines, open in binary."""

    def readline(self, size: int, /) -> bytes:
        """The next line with its end, or at most ``size`` bytes of it. Empty at the end of the file."""


class LongLineError(ValueError):
    """A line is longer than the limit; it was skipped."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"is longer than {max_bytes >> 20} MiB, the longest that a line may be")


class Lines:
    """The lines of a file, their ends included, without a byte order mark.

    Iteration goes on after an error: the line at fault is skipped.

    Args:
        file: The file, open in binary.
        max_bytes: The longest line, in bytes.

    Raises:
        LongLineError: From the iteration.
    """

    def __init__(self, file: LineSource, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self.number = 0
        """The number of the last line read, from 1."""

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> bytes:
        line = self._file.readline(self._max_bytes + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) > self._max_bytes:
            while line and not line.endswith(b"\n"):
                line = self._file.readline(self._max_bytes)
            raise LongLineError(self._max_bytes)
        return line.removeprefix(BYTE_ORDER_MARK) if self.number == 1 else line


def check_row_count(count: int, max_rows: int | None) -> None:
    """Checks the number of rows.

    Raises:
        DatasetLimitError: There are more than the limit.
    """
    if max_rows is not None and count > max_rows:
        raise DatasetLimitError(f"has more than {max_rows:,} rows")


def check_blank_lines(count: int, max_rows: int | None) -> None:
    """Checks the number of blank lines, of which a dataset may have as many as rows.

    Raises:
        DatasetLimitError: There are more than the limit.
    """
    if max_rows is not None and count > max_rows:
        raise DatasetLimitError(f"has more than {max_rows:,} blank lines")


def check_decoded_bytes(count: int, max_bytes: int | None) -> None:
    """Checks the number of bytes after decompression and decoding.

    Raises:
        DatasetLimitError: There are more than the limit.
    """
    if max_bytes is not None and count > max_bytes:
        raise DatasetLimitError(f"has more than {max_bytes:,} bytes when it is unpacked")


class BlankLines:
    """Counts blank lines up to a limit.

    Args:
        max_rows: The limit. None: any number.
    """

    def __init__(self, max_rows: int | None) -> None:
        self._max_rows = max_rows
        self._count = 0

    def add(self) -> None:
        """Counts one; raises as ``check_blank_lines`` does."""
        self._count += 1
        check_blank_lines(self._count, self._max_rows)


class BoundedFile:
    """Reads a file up to a number of bytes.

    Args:
        file: The file, unpacked, open in binary.
        max_bytes: The limit. None: any number.

    Raises:
        DatasetLimitError: From ``readline``: the file has more.
    """

    def __init__(self, file: BinaryIO, max_bytes: int | None) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._count = 0

    def readline(self, size: int = -1) -> bytes:
        """The next line, or at most ``size`` bytes of it."""
        line = self._file.readline(size)
        self._count += len(line)
        check_decoded_bytes(self._count, self._max_bytes)
        return line


def count_rows(file: BoundedFile, form: Format, most: int) -> int:
    """Counts the rows of JSON Lines or CSV without parsing them.

    Blank lines, the header of CSV and line ends within its quotes do not count. CSV that is not well formed
    may have more or fewer rows.

    Args:
        file: The file.
        form: The format.
        most: Counting stops above it.

    Raises:
        DatasetLimitError: There are more blank lines than that.
    """
    is_csv = form is Format.CSV
    count = -1 if is_csv else 0
    blank = BlankLines(most)
    is_quoted = has_text = False
    while count <= most and (piece := file.readline(MAX_LINE_BYTES)):
        has_text = has_text or not piece.isspace()
        if is_csv:
            is_quoted ^= bool(piece.count(b'"') % 2)
        if piece.endswith(b"\n") and not is_quoted:
            if has_text:
                count += 1
                has_text = False
            else:
                blank.add()
    return count + has_text


CHUNK_BYTES = 1 << 20
"""How much is read at once."""
STANDARD_INPUT = "-"
"""The name of standard input."""
_SEPARATOR = "://"


class Meter(io.RawIOBase):
    """A file whose bytes are counted and hashed as they are read. Closing it leaves the file open."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self._hash = hashlib.sha256()
        self.byte_count = 0
        """How many bytes were read."""

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes read, in lower-case hexadecimal."""
        return self._hash.hexdigest()

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fills the buffer, except at the end of the file, so that reads do not depend on the medium."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # a buffer, which 3.11 cannot say
        count = 0
        while count < len(view) and (piece := self._file.read(len(view) - count)):
            view[count : count + len(piece)] = piece
            count += len(piece)
        self._hash.update(view[:count])
        self.byte_count += count
        return count


def read_to_end(file: BinaryIO) -> None:
    """Reads the rest of a file, for its count and hash."""
    while file.read(CHUNK_BYTES):
        pass


def is_remote(address: str) -> bool:
    """Whether an address is that of an object store or the like, such as "s3://bucket/rows.parquet"."""
    return local_path(address) is None


def local_path(address: str) -> Path | None:
    """The path of a local file, which is a path or a ``file://`` address. None: it is remote."""
    if _SEPARATOR not in address:
        return Path(address)
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" and parts.netloc in {"", "localhost"} else None


@contextmanager
def open_source(address: str, *, seekable: bool = False, max_bytes: int | None = None) -> Iterator[BinaryIO]:
    """Opens a dataset in binary.

    Args:
        address: A path, a ``file://`` address, or one that fsspec supports (the extra "datasets").
        seekable: Whether it must be possible to read it at any place. A remote one is then copied to a
            temporary file, so that it is fetched once.
        max_bytes: The most bytes of such a copy. None: any number.

    Raises:
        OSError: It cannot be opened.
        DatasetError: A package for its address is not installed, its kind of address is unknown, or it has
            more bytes.
    """
    path = local_path(address)
    if path is not None:
        with path.open("rb") as file:
            yield file
        return
    with _open_remote(address) as remote:
        if not seekable:
            yield remote
            return
        with spooled(remote, max_bytes) as kept:
            yield kept


@contextmanager
def spooled(file: BinaryIO, max_bytes: int | None = None) -> Iterator[BinaryIO]:
    """Yields a temporary file with the rest of another file.

    Raises:
        DatasetError: The rest has more bytes.
    """
    with tempfile.TemporaryFile() as kept:
        count = 0
        while piece := file.read(CHUNK_BYTES):
            count += len(piece)
            check_decoded_bytes(count, max_bytes)
            kept.write(piece)
        kept.seek(0)
        yield cast("BinaryIO", kept)


def _open_remote(address: str) -> BinaryIO:
    scheme = address.partition(_SEPARATOR)[0]
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise missing(f"at {scheme}{_SEPARATOR}", "fsspec") from error
    try:
        # Not fsspec.open, which takes a * in the name for a pattern.
        system, path = url_to_fs(address)
        return cast("BinaryIO", system.open(path, "rb"))
    except ImportError as error:
        raise DatasetError(
            f"is at {scheme}{_SEPARATOR}, which needs a package that is not installed: {error}"
        ) from error
    except FileNotFoundError:
        # Stores state the path alone.
        raise FileNotFoundError(errno.ENOENT, "the object does not exist", address) from None
    except OSError:
        raise
    except ValueError as error:
        raise DatasetError(f"has an address that cannot be opened: {error}") from error
    except Exception as error:  # stores have errors of their own
        raise OSError(f"{type(error).__name__}: {error}") from error
