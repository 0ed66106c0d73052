"""The endpoint engine against a real HTTP server that embeds with the light encoder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from aiohttp import web
from pydantic import ValidationError

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.embedding.v1.embedding_service_pb2 import (
    EmbedRequest,
    EmbedResponse,
    EmbedTokensRequest,
)
from dramaturg.service.errors import from_rpc_error
from dramaturg.service.settings import SettingsError
from services.embedding.settings import EmbeddingSettings
from tests.support.embedding import WarmApp, embedding_stub
from tests.support.http_servers import serve_http

Entries = list[dict[str, Any]]
Change = Callable[[Entries], Entries]
TEXTS = ["turn on the oven", "", "Zutaten abwiegen 🍰", "turn off the oven", "turn on the oven"]


class EmbeddingsServer:
    """Serves /v1/embeddings with vectors of length 3, last text first, and fails as it is told to."""

    def __init__(self) -> None:
        self.encoder = WarmApp(EmbeddingSettings())._load()[0]
        self.inputs: list[list[str]] = []
        self.keys: list[str] = []
        self.failures: list[int] = []
        self.change: Change = lambda entries: entries
        self.base_url = ""

    async def embed(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.inputs.append(body["input"])
        self.keys.append(request.headers["Authorization"])
        if self.failures:
            error = {"message": f"no, {request.headers['Authorization']} will not do"}
            return web.json_response(
                {"error": error}, status=self.failures.pop(0), headers={"Retry-After": "0"}
            )
        assert "" not in body["input"]
        vectors = self.encoder.encode([one.input for one in self.encoder.prepare(body["input"])])
        entries: Entries = [
            {"object": "embedding", "index": index, "embedding": [3 * float(value) for value in vector]}
            for index, vector in enumerate(vectors)
        ]
        data = self.change(entries[::-1])
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return web.json_response({"object": "list", "model": body["model"], "data": data, "usage": usage})


@asynccontextmanager
async def serving() -> AsyncIterator[EmbeddingsServer]:
    server = EmbeddingsServer()
    async with serve_http(web.post("/v1/embeddings", server.embed)) as address:
        server.base_url = f"{address}/v1"
        yield server


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsServer]:
    async with serving() as server:
        yield server


def settings(server: EmbeddingsServer, **endpoint: Any) -> dict[str, Any]:
    return {"engine": "openai", "model": "remote", "endpoint": {"base_url": server.base_url, **endpoint}}


def matrix(response: EmbedResponse) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.array([embedding.values for embedding in response.embeddings], dtype=np.float32)


async def test_vectors_are_those_of_the_model_behind_it_and_of_length_one(server: EmbeddingsServer) -> None:
    async with embedding_stub(**settings(server)) as remote, embedding_stub() as light:
        theirs = await remote.Embed(EmbedRequest(texts=TEXTS, model="remote"))
        ours = await light.Embed(EmbedRequest(texts=TEXTS))
    np.testing.assert_allclose(matrix(theirs), matrix(ours), atol=1e-4)
    assert (theirs.model, theirs.dimension, theirs.weights_sha256) == ("remote", 384, "")
    # Equal texts are sent once.
    assert sorted(text for texts in server.inputs[1:] for text in texts) == sorted([*set(TEXTS) - {""}, " "])


async def test_long_texts_are_cut_and_marked_and_batches_are_bounded(server: EmbeddingsServer) -> None:
    async with embedding_stub(**settings(server, max_characters=10, batch_texts=2)) as stub:
        response = await stub.Embed(EmbedRequest(texts=["a" * 11, "b" * 10, "c", "d", "e"]))
    assert [one.truncated for one in response.embeddings] == [True, False, False, False, False]
    assert max(len(texts) for texts in server.inputs) == 2
    assert max(len(text) for texts in server.inputs for text in texts) == 10


async def test_there_are_no_tokens_and_nothing_is_asked_for_them(server: EmbeddingsServer) -> None:
    async with embedding_stub(**settings(server)) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.EmbedTokens(EmbedTokensRequest(texts=["a"]))
    error = from_rpc_error(raised.value)
    assert error.code is grpc.StatusCode.UNIMPLEMENTED
    assert error.reason == error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED
    assert "'light'" in error.message
    assert server.inputs == []


async def test_what_passes_is_tried_again_a_bounded_number_of_times(server: EmbeddingsServer) -> None:
    async with embedding_stub(**settings(server, retries=2)) as stub:
        server.failures = [503, 429]
        assert len((await stub.Embed(EmbedRequest(texts=["a"]))).embeddings) == 1
        sent = len(server.inputs)
        server.failures = [503] * 9
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Embed(EmbedRequest(texts=["b"]))
        assert len(server.inputs) == sent + 3
    assert from_rpc_error(raised.value).reason == error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (
            401,
            grpc.StatusCode.FAILED_PRECONDITION,
            error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED,
        ),
        (429, grpc.StatusCode.RESOURCE_EXHAUSTED, error_reason_pb2.ERROR_REASON_PROVIDER_RATE_LIMITED),
        (400, grpc.StatusCode.FAILED_PRECONDITION, error_reason_pb2.ERROR_REASON_PROVIDER_REJECTED),
        (500, grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE),
    ],
)
async def test_failures_are_told_apart_and_never_quote_the_key(
    server: EmbeddingsServer,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    code: grpc.StatusCode,
    reason: ErrorReason.ValueType,
) -> None:
    monkeypatch.setenv("EMBEDDING_KEY", "sesame-open")
    server.failures = [status]
    async with embedding_stub(**settings(server, api_key_env="EMBEDDING_KEY", retries=0)) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Embed(EmbedRequest(texts=["a"]))
        error = from_rpc_error(raised.value)
        assert (error.code, error.reason) == (code, reason)
        assert "sesame" not in f"{error.message} {error.metadata}"
        # It passed: no restart is needed.
        assert len((await stub.Embed(EmbedRequest(texts=["a"]))).embeddings) == 1
    assert set(server.keys) == {"Bearer sesame-open"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda entries: entries[:-1], "vectors for"),
        (lambda entries: [{**entry, "embedding": [0.0, 0.0]} for entry in entries], "length is 0"),
        (lambda entries: [{**entry, "embedding": [1.0, 2.0]} for entry in entries], "2 members"),
    ],
)
async def test_vectors_that_cannot_be_compared_are_refused(
    server: EmbeddingsServer, change: Change, words: str
) -> None:
    async with embedding_stub(**settings(server)) as stub:
        await stub.Embed(EmbedRequest(texts=["first"]))
        server.change = change
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Embed(EmbedRequest(texts=["second"]))
    assert words in from_rpc_error(raised.value).message


async def test_the_key_comes_from_a_file(server: EmbeddingsServer, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file\n", encoding="utf-8")
    async with embedding_stub(**settings(server, api_key_file=tmp_path / "key")) as stub:
        await stub.Embed(EmbedRequest(texts=["a"]))
    assert set(server.keys) == {"Bearer from-a-file"}


async def test_a_key_that_is_not_there_is_a_wrong_setting(server: EmbeddingsServer) -> None:
    with pytest.raises(SettingsError, match="ABSENT_KEY"):
        async with embedding_stub(**settings(server, api_key_env="ABSENT_KEY")):
            pass


@pytest.mark.parametrize(
    "wrong",
    [
        {"engine": "openai", "model_dir": "."},
        {"engine": "openai", "weights_sha256": "0" * 64},
        {"engine": "sentence-transformers", "model": "hub/model", "weights_sha256": "0" * 64},
        {"endpoint": {"api_key_env": "A", "api_key_file": "b"}},
        {"endpoint": {"base_url": "ftp://example"}},
    ],
)
def test_settings_that_contradict_each_other(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EmbeddingSettings(**wrong)
