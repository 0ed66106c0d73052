"""Counts and hashes the bytes read from a file."""

from __future__ import annotations

import hashlib
import io
from typing import BinaryIO

CHUNK_BYTES = 1 << 20
"""How much is read at once."""


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
