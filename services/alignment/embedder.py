"""Vectors of texts and of their tokens from EmbeddingService."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

import grpc
import numpy as np

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.embedding.v1.embedding_service_pb2 import (
    EmbedRequest,
    EmbedTokensRequest,
    TokenEmbeddings,
)
from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from dramaturg.service.errors import from_rpc_error
from services.alignment.text.similarity import (
    Embedded,
    EmbeddedTokens,
    EmbeddingError,
    Matrix,
    TooManyTokensError,
)

Response = TypeVar("Response")


class RemoteEmbedder:
    """Asks EmbeddingService.

    Args:
        channel: A channel to it.
        model: The model; empty for its default.
    """

    def __init__(self, channel: grpc.aio.Channel, model: str) -> None:
        self._stub = EmbeddingServiceStub(channel)
        self._model = model

    async def embed(self, texts: Sequence[str]) -> Embedded:
        response = await _answer(self._stub.Embed(EmbedRequest(texts=texts, model=self._model)))
        _require(len(response.embeddings) == len(texts), f"vectors for {len(response.embeddings)}", texts)
        return Embedded(
            [np.array(one.values, np.float32) for one in response.embeddings],
            sum(one.truncated for one in response.embeddings),
            response.model,
        )

    async def embed_tokens(self, texts: Sequence[str], layer: int | None = None) -> EmbeddedTokens:
        request = EmbedTokensRequest(
            texts=texts, model=self._model, layer=layer or 0, with_special_tokens=layer is not None
        )
        response = await _answer(self._stub.EmbedTokens(request))
        _require(len(response.texts) == len(texts), f"tokens of {len(response.texts)}", texts)
        matrices = []
        for text in response.texts:
            matrices.append(_matrix(text, response.dimension))
            # A text's numbers take milliseconds: other calls get their turn between.
            await asyncio.sleep(0)
        if layer and response.layer != layer:
            raise EmbeddingError(f"EmbeddingService gave no vectors of layer {layer}")
        return EmbeddedTokens(
            matrices,
            [text.truncated for text in response.texts],
            response.model,
            response.layer,
            [text.tokens for text in response.texts],
            [(text.leading_special_count, text.trailing_special_count) for text in response.texts],
        )


async def _answer(call: Awaitable[Response]) -> Response:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        failure = from_rpc_error(error)
        large = failure.reason == error_reason_pb2.ERROR_REASON_TOO_LARGE
        kind = TooManyTokensError if large else EmbeddingError
        raise kind(f"EmbeddingService failed with {failure.code.name}: {failure.message}") from error


def _matrix(text: TokenEmbeddings, dimension: int) -> Matrix:
    count = len(text.tokens)
    if len(text.values) != count * dimension:
        raise EmbeddingError(
            f"EmbeddingService gave {len(text.values)} numbers for {count} tokens of {dimension} each"
        )
    # Three times as fast as np.array.
    return np.fromiter(text.values, np.float32, len(text.values)).reshape(count, dimension)


def _require(met: bool, what: str, texts: Sequence[str]) -> None:
    if not met:
        raise EmbeddingError(f"EmbeddingService gave {what} texts instead of {len(texts)}")
