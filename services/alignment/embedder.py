"""Sentence vectors from EmbeddingService."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import numpy as np

from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest
from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from dramaturg.service.errors import from_rpc_error
from services.alignment.text.similarity import Embedded, EmbeddingError


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
        """See ``Embedder``."""
        try:
            response = await self._stub.Embed(EmbedRequest(texts=texts, model=self._model))
        except grpc.aio.AioRpcError as error:
            failure = from_rpc_error(error)
            raise EmbeddingError(
                f"EmbeddingService failed with {failure.code.name}: {failure.message}"
            ) from error
        if len(response.embeddings) != len(texts):
            raise EmbeddingError(
                f"EmbeddingService gave {len(response.embeddings)} vectors for {len(texts)} texts"
            )
        return Embedded(
            [np.array(one.values, np.float32) for one in response.embeddings],
            sum(one.truncated for one in response.embeddings),
            response.model,
        )
