"""Vectors from the embedding service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import grpc
import numpy as np
from numpy.typing import NDArray

from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest
from dramaturg.service.errors import downstream

Floats: TypeAlias = NDArray[np.float32]

SERVICE = "embedding"
"""The name of the dependency in errors."""

_TEXTS_PER_CALL = 2048
_CHARACTERS_PER_CALL = 2_000_000
_CHARACTERS_READ = 20_000
"""The maximum length of a text in characters. The encoder's window is a few hundred word pieces."""


@dataclass(frozen=True)
class Embedded:
    """The vectors of some texts."""

    vectors: Mapping[str, Floats]
    """Unit vectors, (dimension,), by text."""
    truncated: frozenset[str]
    """The texts that the encoder truncated."""
    model: str
    """The encoder."""

    def rows(self, texts: Sequence[str]) -> Floats:
        """The vectors of several texts, (texts, dimension)."""
        return np.stack([self.vectors[text] for text in texts])


class Embeddings:
    """Turns texts into vectors.

    Args:
        stub: The embedding service.
    """

    def __init__(self, stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub) -> None:
        self._stub = stub

    async def embed(self, texts: Iterable[str]) -> Embedded:
        """Embeds texts, each once.

        Raises:
            ServiceError: The service failed (see ``dramaturg.service.errors.downstream``).
        """
        vectors: dict[str, Floats] = {}
        truncated: set[str] = set()
        model = ""
        for part in _parts(dict.fromkeys(texts)):
            try:
                response = await self._stub.Embed(
                    EmbedRequest(texts=[text[:_CHARACTERS_READ] for text in part])
                )
            except grpc.aio.AioRpcError as error:
                raise downstream(error, SERVICE) from error
            model = response.model
            for text, embedding in zip(part, response.embeddings, strict=True):
                vectors[text] = np.fromiter(embedding.values, dtype=np.float32, count=len(embedding.values))
                if embedding.truncated or len(text) > _CHARACTERS_READ:
                    truncated.add(text)
        return Embedded(vectors, frozenset(truncated), model)


def _parts(texts: Iterable[str]) -> Iterator[list[str]]:
    part: list[str] = []
    room = _CHARACTERS_PER_CALL
    for text in texts:
        size = min(len(text), _CHARACTERS_READ)
        if part and (len(part) == _TEXTS_PER_CALL or size > room):
            yield part
            part, room = [], _CHARACTERS_PER_CALL
        part.append(text)
        room -= size
    if part:
        yield part
