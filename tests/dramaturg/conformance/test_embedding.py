"""The checks of embedding services, against ours and several that break their contract."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import grpc
import pytest

from dramaturg import conformance
from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.embedding.v1 import embedding_service_pb2, embedding_service_pb2_grpc
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedResponse
from dramaturg.judge.roles import EMBEDDING
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.testing import serve
from services.embedding.settings import EmbeddingSettings
from tests.support.embedding import WarmApp

FORM = frozenset(
    {
        "answers-well-formed",
        "answers-empty-input",
        "embeds-each-text-by-itself",
        "tells-texts-apart",
        "keeps-vectors-apart",
        "marks-truncated-texts",
        "bears-every-plane",
        "answers-the-largest-input",
        "keeps-calls-apart",
    }
)
"""The checks that look at the form of vectors."""
MODEL = "random"


def vector(text: str) -> list[float]:
    draw = random.Random(hashlib.sha256(text[:1000].encode()).digest())
    values = [draw.gauss(0, 1) for _ in range(8)]
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]


class RandomEmbedding(embedding_service_pb2_grpc.EmbeddingServiceServicer):
    """Vectors that depend on the first 1,000 characters."""

    def __init__(self, change: Callable[[EmbedRequest, EmbedResponse], None]) -> None:
        self._change = change

    async def Embed(self, request: EmbedRequest, context: Any) -> EmbedResponse:
        del context
        if request.model not in {"", MODEL}:
            raise ServiceError(
                grpc.StatusCode.INVALID_ARGUMENT, error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN, "no such model"
            )
        response = EmbedResponse(model=MODEL, dimension=8)
        for text in request.texts:
            response.embeddings.add(values=vector(text), truncated=len(text) > 1000)
        self._change(request, response)
        return response

    async def EmbedTokens(self, request: Any, context: Any) -> Any:
        raise ServiceError(
            grpc.StatusCode.UNIMPLEMENTED, error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED, "no tokens"
        )


def contract(change: Callable[[EmbedRequest, EmbedResponse], None], *capabilities: str) -> Contract:
    return Contract.make(
        embedding_service_pb2.DESCRIPTOR.services_by_name["EmbeddingService"],
        embedding_service_pb2_grpc.add_EmbeddingServiceServicer_to_server,
        RandomEmbedding(change),
        name="random-embedding",
        version="1.0.0",
        description="Random.",
        capabilities=capabilities,
    )


async def broken(contracts: Sequence[Contract]) -> dict[str, str]:
    async with serve(*contracts) as server:
        outcomes = await conformance.run(EMBEDDING, server.target, timeout=60)
    assert len(outcomes) > 15
    return {one.check.name: one.failure for one in outcomes if one.broken}


async def test_our_service_keeps_its_contract() -> None:
    async with WarmApp(EmbeddingSettings()).open() as contracts:
        assert await broken(contracts) == {}


def doubled(_: EmbedRequest, response: EmbedResponse) -> None:
    for one in response.embeddings:
        one.values[:] = [2 * value for value in one.values]


def endless(_: EmbedRequest, response: EmbedResponse) -> None:
    for one in response.embeddings:
        one.values[0] = math.nan


def constant(_: EmbedRequest, response: EmbedResponse) -> None:
    for one in response.embeddings:
        one.values[:] = vector("")


def sorted_texts(request: EmbedRequest, response: EmbedResponse) -> None:
    for one, text in zip(response.embeddings, sorted(request.texts), strict=True):
        one.values[:] = vector(text)


def by_company(request: EmbedRequest, response: EmbedResponse) -> None:
    if len(request.texts) == 2 and request.texts[0]:
        response.embeddings[0].values[:] = vector(request.texts[1])


def cut_silently(_: EmbedRequest, response: EmbedResponse) -> None:
    for one in response.embeddings:
        one.truncated = False


def other_weights(request: EmbedRequest, response: EmbedResponse) -> None:
    response.weights_sha256 = str(len(request.texts))


def none_for_empty(request: EmbedRequest, response: EmbedResponse) -> None:
    if not request.texts[0]:
        del response.embeddings[0]


@pytest.mark.parametrize(
    ("change", "failing", "message"),
    [
        (lambda *_: None, frozenset(), ""),
        (doubled, FORM, "not 1"),
        (endless, FORM, "has length nan"),
        (constant, {"tells-texts-apart"}, "is 1.0000"),
        (sorted_texts, {"embeds-each-text-by-itself", "keeps-vectors-apart"}, "differs by"),
        (by_company, {"embeds-each-text-by-itself"}, "beside a long one"),
        (cut_silently, {"marks-truncated-texts"}, "not marked as truncated"),
        (other_weights, {"keeps-its-model"}, "model, weights and dimension"),
        (none_for_empty, {"answers-empty-input"}, "1 vectors came for 2 texts"),
    ],
)
async def test_what_is_broken_is_named(
    change: Callable[[EmbedRequest, EmbedResponse], None], failing: AbstractSet[str], message: str
) -> None:
    failures = await broken([contract(change)])
    assert failures.keys() == failing
    assert all(message in failure for failure in failures.values())


async def test_tokens_that_are_stated_and_not_embedded_are_found() -> None:
    failures = await broken([contract(lambda *_: None, "tokens")])
    assert failures == {"embeds-tokens": "the call failed with UNIMPLEMENTED: no tokens"}
