"""The checks of embedding services, against ours and several that break their contract."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import pytest

from dramaturg import conformance
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedResponse
from dramaturg.judge.roles import EMBEDDING
from dramaturg.service.contract import Contract
from dramaturg.testing import serve
from services.embedding.settings import EmbeddingSettings
from tests.dramaturg.conformance.services import embedding, vector
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
    failures = await broken([embedding(change)])
    assert failures.keys() == failing
    assert all(message in failure for failure in failures.values())


async def test_tokens_that_are_stated_and_not_embedded_are_found() -> None:
    failures = await broken([embedding(lambda *_: None, "tokens")])
    assert failures == {"embeds-tokens": "the call failed with UNIMPLEMENTED: no tokens"}
