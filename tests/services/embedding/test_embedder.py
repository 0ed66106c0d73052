"""The embedder over a backend that counts what it is asked to encode."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from services.embedding.backend import Floats, ModelFacts, Prepared
from services.embedding.cache import VectorCache
from services.embedding.embedder import Embedder


class CountingBackend:
    model = "counting"
    workers = 1

    def __init__(self) -> None:
        self.encoded: list[str] = []
        self.batches = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.under_way = asyncio.Event()

    async def load(self) -> ModelFacts:
        return ModelFacts(self.model, 2)

    async def prepare(self, texts: Sequence[str]) -> Sequence[Prepared[str]]:
        return [Prepared(text, len(text), truncated=text == "cut") for text in texts]

    async def encode(self, inputs: Sequence[str]) -> Floats:
        self.batches += 1
        self.under_way.set()
        await self.gate.wait()
        self.encoded += inputs
        return np.array([[len(text), 1] for text in inputs], dtype=np.float32)

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
