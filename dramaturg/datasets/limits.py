"""Bounds the rows, lines and bytes of a dataset."""

from __future__ import annotations

from typing import BinaryIO

from dramaturg.datasets.errors import DatasetLimitError
from dramaturg.datasets.formats import MAX_LINE_BYTES, Format


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
