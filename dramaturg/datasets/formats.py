"""How a dataset is written: its format, and lines of bounded length."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

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
