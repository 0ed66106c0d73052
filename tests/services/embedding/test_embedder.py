"""The embedder over a backend that counts what it is asked to encode."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.embedding.backend import Floats, ModelFacts, Prepared, TokenChoice, TokenVectors
from services.embedding.embedder import (
    MAX_TOKEN_BYTES,
    Embedder,
    TokensTooLargeError,
    Vector,
    VectorCache,
    plan_batches,
    text_key,
)


class CountingBackend:
    model = "counting"
    workers = 1
    gives_tokens = True

    def __init__(self) -> None:
        self.encoded: list[str] = []
        self.batches = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.under_way = asyncio.Event()

    async def load(self) -> ModelFacts:
        return ModelFacts(self.model, 2, 2)

    async def prepare(self, texts: Sequence[str]) -> Sequence[Prepared[str]]:
        return [Prepared(text, len(text), truncated=text == "cut") for text in texts]

    async def encode(self, inputs: Sequence[str]) -> Floats:
        self.batches += 1
        self.under_way.set()
        await self.gate.wait()
        self.encoded += inputs
        return np.array([[len(text), 1] for text in inputs], dtype=np.float32)

    async def encode_tokens(self, inputs: Sequence[str], choice: TokenChoice) -> Sequence[TokenVectors]:
        rows = await self.encode(inputs)
        return [
            TokenVectors(list(text), np.repeat(row[None], len(text), axis=0))
            for text, row in zip(inputs, rows, strict=True)
        ]

    async def close(self) -> None:
        pass


def embedder(backend: CountingBackend, budget: int = 1000, capacity: int = 1 << 20) -> Embedder[str]:
    return Embedder(backend, VectorCache(capacity), budget)


async def test_every_text_gets_its_own_vector_in_order() -> None:
    backend = CountingBackend()
    texts = ["aaa", "b", "cut", "aaa", "dddd"]
    embedded = await embedder(backend, budget=4).embed(texts)
    assert [vector.values[0] for vector in embedded.vectors] == [3, 1, 3, 3, 4]
    assert [vector.truncated for vector in embedded.vectors] == [False, False, True, False, False]
    assert sorted(backend.encoded) == ["aaa", "b", "cut", "dddd"]


async def test_what_was_embedded_before_is_remembered() -> None:
    backend = CountingBackend()
    shared = embedder(backend)
    await shared.embed(["a", "b"])
    await shared.embed(["b", "c"])
    assert sorted(backend.encoded) == ["a", "b", "c"]


async def test_without_a_cache_the_answer_is_still_whole() -> None:
    backend = CountingBackend()
    embedded = await embedder(backend, budget=1, capacity=0).embed(["a", "b", "a"])
    assert len(embedded.vectors) == 3


async def test_requests_at_the_same_time_embed_a_common_text_once() -> None:
    backend = CountingBackend()
    shared = embedder(backend)
    await asyncio.gather(*(shared.embed(["a", "b", "c"]) for _ in range(5)))
    assert sorted(backend.encoded) == ["a", "b", "c"]


async def test_a_cancelled_request_stops_between_batches_and_frees_its_turn() -> None:
    backend = CountingBackend()
    backend.gate.clear()
    shared = embedder(backend, budget=1)
    call = asyncio.create_task(shared.embed([str(number) for number in range(10)]))
    await backend.under_way.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    backend.gate.set()
    await shared.embed(["other"])
    assert backend.batches == 2


async def test_tokens_come_in_order_each_text_computed_once() -> None:
    backend = CountingBackend()
    embedded = await embedder(backend, budget=4).embed_tokens(["aaa", "b", "cut", "aaa"])
    assert [list(text.tokens) for text in embedded.texts] == [list("aaa"), ["b"], list("cut"), list("aaa")]
    assert [text.values[0, 0] for text in embedded.texts] == [3, 1, 3, 3]
    assert embedded.truncated == [False, False, True, False]
    assert sorted(backend.encoded) == ["aaa", "b", "cut"]


async def test_too_many_tokens_are_refused_before_anything_is_computed() -> None:
    backend = CountingBackend()
    fitting = MAX_TOKEN_BYTES // 8
    with pytest.raises(TokensTooLargeError) as refused:
        await embedder(backend).embed_tokens(["a" * fitting, "b"])
    assert refused.value.actual == MAX_TOKEN_BYTES + 8
    assert not backend.encoded
    # A text that stands there twice is sent twice.
    with pytest.raises(TokensTooLargeError):
        await embedder(backend).embed_tokens(["a" * (fitting // 2 + 1)] * 2)


@given(st.lists(st.integers(1, 300)), st.integers(1, 2000))
def test_every_text_once_and_no_batch_over_the_budget(lengths: list[int], budget: int) -> None:
    batches = plan_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = max(lengths[index] for index in batch) * len(batch)
        assert padded <= budget or len(batch) == 1


@given(st.lists(st.integers(1, 300), min_size=1), st.integers(300, 4000))
def test_batches_are_full(lengths: list[int], budget: int) -> None:
    batches = plan_batches(lengths, budget)
    for batch, following in itertools.pairwise(batches):
        assert max(lengths[index] for index in batch) * (len(batch) + 1) > budget
        assert min(lengths[index] for index in batch) >= max(lengths[index] for index in following)


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
