"""Answers EmbeddingService."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedResponse
from dramaturg.service.errors import ServiceError
from services.embedding.embedder import Embedded, Embedder
from services.embedding.weights import WeightsMissingError

_ROWS_AT_ONCE = 256


class EmbeddingServicer(embedding_service_pb2_grpc.EmbeddingServiceServicer):
    """Decodes, embeds, encodes."""

    def __init__(self, embedder: Embedder[Any]) -> None:
        self._embedder = embedder

    async def Embed(
        self, request: EmbedRequest, context: grpc.aio.ServicerContext[EmbedRequest, EmbedResponse]
    ) -> EmbedResponse:
        """Embeds texts."""
        del context
        if request.model not in {"", self._embedder.model}:
            raise _model_unknown(request.model, self._embedder.model)
        try:
            embedded = await self._embedder.embed(request.texts)
        except WeightsMissingError as missing:
            raise _weights_missing(missing) from missing
        return await _encode(embedded)


async def _encode(embedded: Embedded) -> EmbedResponse:
    facts = embedded.facts
    response = EmbedResponse(model=facts.name, weights_sha256=facts.weights_sha256, dimension=facts.dimension)
    for index, vector in enumerate(embedded.vectors):
        response.embeddings.add(values=vector.values.tolist(), truncated=vector.truncated)
        if index % _ROWS_AT_ONCE == _ROWS_AT_ONCE - 1:
            # Thousands of vectors take tens of milliseconds: other calls get their turn between.
            await asyncio.sleep(0)
    return response


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
