from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import grpc

from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedResponse
from dramaturg.embedding import SMALL_BATCH
from dramaturg.service.channel import open_channel
from dramaturg.testing import serve
from dramaturg_research.near_duplicates import find_duplicates
from services.embedding.settings import EmbeddingSettings
from tests.support.embedding import WarmApp
from tests.support.evaluations import contract
from tests.support.grpc_servers import silent, synthesizer

Embed = Callable[[EmbedRequest], Awaitable[EmbedResponse]]
TEXTS = [
    "is a great fan of trains",
    "Is a great  fan of trains",
    "has no printer",
    "is a great fan of railways",
]


async def test_near_duplicates_are_found_by_their_vectors() -> None:
    async with (
        WarmApp(EmbeddingSettings()).open() as contracts,
        serve(*contracts) as server,
        open_channel(server.target) as channel,
    ):
        found = await find_duplicates(channel, TEXTS, 0.7)
    assert found.unchecked == ""
    assert found.earlier == [None, 0, None, 0]


async def test_without_embeddings_it_says_so() -> None:
    async with serve(synthesizer(silent)) as server, open_channel(server.target) as channel:
        found = await find_duplicates(channel, TEXTS, 0.7)
    assert found.unchecked
    assert found.uncompared == [0, 1, 2, 3]
    assert found.earlier == [None, 0, None, None]


@asynccontextmanager
async def embedder(embed: Embed) -> AsyncIterator[grpc.aio.Channel]:
    served = contract("embedding", {"Embed": embed})
    async with serve(served) as server, open_channel(server.target) as channel:
        yield channel


def answer(texts: Sequence[str]) -> EmbedResponse:
    """Texts with the same last word have the same vector."""
    named = {word: place for place, word in enumerate(("trains", "printer"))}
    response = EmbedResponse(model="m")
    for text in texts:
        vector = [0.0] * 3
        vector[named.get(text.split()[-1], 2)] = 1.0
        response.embeddings.add(values=vector)
    return response


async def test_a_slow_service_is_asked_for_fewer_texts_at_once() -> None:
    asked: list[int] = []

    async def embed(request: EmbedRequest) -> EmbedResponse:
        asked.append(len(request.texts))
        if len(request.texts) > SMALL_BATCH:
            await asyncio.Event().wait()
        return answer(request.texts)

    texts = ["likes trains", *(f"is number {index}" for index in range(30)), "collects trains"]
    async with embedder(embed) as channel:
        found = await find_duplicates(channel, texts, 0.9, timeout=1)
    assert asked == [32, 16, 16]
    assert (found.earlier[-1], found.unchecked, found.uncompared) == (0, "", [])


async def test_texts_without_a_vector_are_named_and_the_others_compared() -> None:
    async def embed(request: EmbedRequest) -> EmbedResponse:
        if "never in time" in request.texts:
            await asyncio.Event().wait()
        return answer(request.texts)

    texts = ["likes trains", *["has a printer"] * 14, "collects trains", "never in time", "sees trains"]
    async with embedder(embed) as channel:
        found = await find_duplicates(channel, texts, 0.9, timeout=0.5)
    assert found.earlier[15] == 0
    assert found.uncompared == [16, 17]
    assert found.earlier[16:] == [None, None]
    assert found.unchecked.startswith("EmbeddingService failed with DEADLINE_EXCEEDED: ")


async def test_an_answer_with_too_few_vectors_compares_nothing() -> None:
    async def embed(request: EmbedRequest) -> EmbedResponse:
        return answer(request.texts[1:])

    async with embedder(embed) as channel:
        found = await find_duplicates(channel, ["likes trains", "collects trains"], 0.9)
    assert found.earlier == [None, None]
    assert found.unchecked == (
        "EmbeddingService answered with other vectors than one of length 1 for each text"
    )
