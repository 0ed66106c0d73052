"""Keeps vectors by the hash of their text, the least recently used leaving first."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from services.embedding.backend import Floats

_OVERHEAD = 400
"""What an entry takes besides its vector: the key, the array and the places in the table, in bytes."""


@dataclass(frozen=True, slots=True)
class Vector:
    """The vector of a text."""

    values: Floats
    """Of length 1, (dimension,)."""
    truncated: bool
    """Whether the text was longer than the model's window and cut off."""


def text_key(text: str) -> bytes:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class VectorCache:
    """Vectors of one model, up to a number of bytes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._vectors: OrderedDict[bytes, Vector] = OrderedDict()
        self._size = 0

    @property
    def size(self) -> int:
        """The bytes taken."""
        return self._size

    def __len__(self) -> int:
        return len(self._vectors)

    def get(self, key: bytes) -> Vector | None:
        """The vector, which then counts as just used."""
        vector = self._vectors.get(key)
        if vector is not None:
            self._vectors.move_to_end(key)
        return vector

    def put(self, key: bytes, vector: Vector) -> None:
        """Keeps a vector, unless it is larger than all the room there is."""
        size = _size(vector)
        if size > self._capacity or key in self._vectors:
            return
        self._vectors[key] = vector
        self._size += size
        while self._size > self._capacity:
            _, oldest = self._vectors.popitem(last=False)
            self._size -= _size(oldest)


def _size(vector: Vector) -> int:
    return vector.values.nbytes + _OVERHEAD
