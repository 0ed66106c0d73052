"""Answers EmbeddingService."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from dramaturg.api.embedding.v1.embedding_service_pb2 import (
    EmbedRequest,
    EmbedResponse,
    EmbedTokensRequest,
    EmbedTokensResponse,
)
from dramaturg.service.errors import ServiceError, invalid
from services.embedding.backend import TokenChoice
from services.embedding.embedder import (
    MAX_TOKEN_BYTES,
    Embedded,
    EmbeddedTokens,
    Embedder,
    NoSuchLayerError,
    TokensTooLargeError,
)
from services.embedding.weights import WeightsMissingError

_ROWS_AT_ONCE = 256


class EmbeddingServicer(embedding_service_pb2_grpc.EmbeddingServiceServicer):
    def __init__(self, embedder: Embedder[Any]) -> None:
        self._embedder = embedder

    async def Embed(
        self, request: EmbedRequest, context: grpc.aio.ServicerContext[EmbedRequest, EmbedResponse]
    ) -> EmbedResponse:
        del context
        self._check_model(request.model)
        try:
            embedded = await self._embedder.embed(request.texts)
        except WeightsMissingError as missing:
            raise _weights_missing(missing) from missing
        return await _encode(embedded)

    async def EmbedTokens(
        self,
        request: EmbedTokensRequest,
        context: grpc.aio.ServicerContext[EmbedTokensRequest, EmbedTokensResponse],
    ) -> EmbedTokensResponse:
        del context
        self._check_model(request.model)
        if not self._embedder.gives_tokens:
            raise _no_tokens(self._embedder.model)
        try:
            choice = TokenChoice(request.layer, special=request.with_special_tokens)
            embedded = await self._embedder.embed_tokens(request.texts, choice)
        except WeightsMissingError as missing:
            raise _weights_missing(missing) from missing
        except NoSuchLayerError as error:
            raise invalid("layer", str(error)) from error
        except TokensTooLargeError as error:
            raise _too_large(error) from error
        return await _encode_tokens(embedded, request.layer or embedded.facts.layer_count)

    def _check_model(self, model: str) -> None:
        if model not in {"", self._embedder.model}:
            raise _model_unknown(model, self._embedder.model)


async def _encode(embedded: Embedded) -> EmbedResponse:
    facts = embedded.facts
    response = EmbedResponse(model=facts.name, weights_sha256=facts.weights_sha256, dimension=facts.dimension)
    for index, vector in enumerate(embedded.vectors):
        response.embeddings.add(values=vector.values.tolist(), truncated=vector.truncated)
        if index % _ROWS_AT_ONCE == _ROWS_AT_ONCE - 1:
            # Thousands of vectors take tens of milliseconds: other calls get their turn between.
            await asyncio.sleep(0)
    return response


async def _encode_tokens(embedded: EmbeddedTokens, layer: int) -> EmbedTokensResponse:
    facts = embedded.facts
    response = EmbedTokensResponse(
        model=facts.name,
        weights_sha256=facts.weights_sha256,
        dimension=facts.token_dimension,
        layer=layer,
    )
    for text, truncated in zip(embedded.texts, embedded.truncated, strict=True):
        response.texts.add(
            tokens=text.tokens,
            values=text.values.ravel().tolist(),
            truncated=truncated,
            leading_special_count=text.leading,
            trailing_special_count=text.trailing,
        )
        # A text's numbers take milliseconds: other calls get their turn between.
        await asyncio.sleep(0)
    return response


def _no_tokens(model: str) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.UNIMPLEMENTED,
        error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED,
        f"the endpoint of {model!r} gives one vector for a whole text and none for its tokens; serve with "
        "the engine 'light' or 'sentence-transformers'",
    )


def _too_large(error: TokensTooLargeError) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        error_reason_pb2.ERROR_REASON_TOO_LARGE,
        f"texts: {error}; ask for fewer at once",
        metadata={"limit": str(MAX_TOKEN_BYTES), "actual": str(error.actual)},
    )


def _model_unknown(model: str, served: str) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.INVALID_ARGUMENT,
        error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
        f"model {model!r} is not served here; {served!r} is",
        metadata={"model": model},
    )


def _weights_missing(missing: WeightsMissingError) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_WEIGHTS_MISSING,
        str(missing),
        metadata={"command": missing.command} if missing.command else {},
    )
