"""Client of the embedding service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import numpy as np
from numpy.typing import NDArray

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedResponse
from dramaturg.service.errors import ServiceError, downstream

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub

SERVICE = "embedding"
"""The name of the dependency in errors."""

_TEXTS_PER_CALL = 512  # 2,200 characters each and 4,096 dimensions stay below 16 MiB both ways


@dataclass(frozen=True)
class Embedded:
    vectors: NDArray[np.float32]
    """(texts, dimension), none of length 0."""
    truncated: int
    """The number of truncated texts."""
    model: str
    """The model."""
    weights_sha256: str
    """The hash of the weights; empty if the service does not report it."""


class Embedder:
    """Embeds texts.

    Args:
        stub: The embedding service.
        model: The model. Empty: the service's default.
    """

    def __init__(self, stub: EmbeddingServiceAsyncStub, model: str = "") -> None:
        self._stub = stub
        self._model = model

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Embeds texts, each distinct one once.

        Raises:
            ServiceError: The service failed, or returned invalid vectors.
        """
        distinct = list(dict.fromkeys(texts))
        blocks: list[NDArray[np.float32]] = []
        cut: list[bool] = []
        response = EmbedResponse()
        for start in range(0, len(distinct), _TEXTS_PER_CALL):
            part = distinct[start : start + _TEXTS_PER_CALL]
            response = await self._ask(part)
            blocks.append(_matrix(response, len(part)))
            cut += [embedding.truncated for embedding in response.embeddings]
        if len({block.shape[1] for block in blocks}) > 1:
            raise _broken("vectors of different lengths")
        place = {text: row for row, text in enumerate(distinct)}
        rows = [place[text] for text in texts]
        return Embedded(
            np.concatenate(blocks)[rows],
            sum(cut[row] for row in rows),
            response.model,
            response.weights_sha256,
        )

    async def _ask(self, texts: Sequence[str]) -> EmbedResponse:
        try:
            return await self._stub.Embed(EmbedRequest(texts=texts, model=self._model))
        except grpc.aio.AioRpcError as error:
            raise downstream(error, SERVICE) from error


def _matrix(response: EmbedResponse, count: int) -> NDArray[np.float32]:
    rows = [np.array(embedding.values, np.float32) for embedding in response.embeddings]
    if len(rows) != count:
        raise _broken(f"{len(rows)} vectors for {count} texts")
    if len({len(row) for row in rows}) > 1:
        raise _broken("vectors of different lengths")
    matrix = np.stack(rows)
    lengths = np.linalg.norm(matrix, axis=1)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise _broken("a vector whose length is 0 or no number")
    return matrix


def _broken(what: str) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.INTERNAL,
        error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED,
        f"{SERVICE} returned {what}",
        metadata={"service": SERVICE},
    )
