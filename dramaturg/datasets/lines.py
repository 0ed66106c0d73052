"""The lines of a file, none of which fills the memory."""

from __future__ import annotations

from typing import BinaryIO

from dramaturg.datasets.formats import MAX_LINE_BYTES

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LongLineError(ValueError):
    """A line is longer than the limit; it was passed over."""

    def __init__(self) -> None:
        super().__init__(f"is longer than {MAX_LINE_BYTES >> 20} MiB, the longest that a line may be")


class Lines:
    """The lines of a file, their ends included, without a byte order mark.

    Iteration goes on after an error: the line at fault is passed over.

    Raises:
        LongLineError: From the iteration.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.number = 0
        """The number of the last line read, from 1."""

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> bytes:
        line = self._file.readline(MAX_LINE_BYTES + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = self._file.readline(MAX_LINE_BYTES)
            raise LongLineError
        return line.removeprefix(BYTE_ORDER_MARK) if self.number == 1 else line
