from __future__ import annotations

import numpy as np

from services.embedding.embedder import Vector, VectorCache, text_key


def vector(value: float) -> Vector:
    return Vector(np.full(100, value, dtype=np.float32), truncated=False)


ENTRY = 800
"""100 floats and an entry's overhead."""


def test_the_least_recently_used_leaves_first() -> None:
    cache = VectorCache(2 * ENTRY)
    for name in ("a", "b"):
        cache.put(text_key(name), vector(1))
    assert cache.get(text_key("a")) is not None
    cache.put(text_key("c"), vector(1))
    assert cache.get(text_key("b")) is None
    assert cache.get(text_key("a")) is not None
    assert cache.size == 2 * ENTRY


def test_the_size_never_passes_the_capacity() -> None:
    cache = VectorCache(10 * ENTRY + 1)
    for number in range(1000):
        cache.put(text_key(str(number)), vector(number))
        assert cache.size <= 10 * ENTRY + 1
    assert len(cache) == 10


def test_without_room_nothing_is_kept() -> None:
    cache = VectorCache(0)
    cache.put(text_key("a"), vector(1))
    assert len(cache) == 0
