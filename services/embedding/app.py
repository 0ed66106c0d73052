"""Wires the embedding service together."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version

from dramaturg.api.embedding.v1 import embedding_service_pb2, embedding_service_pb2_grpc
from dramaturg.service.contract import Contract
from services.embedding.cache import VectorCache
from services.embedding.embedder import Embedder
from services.embedding.light import LightEncoder, TokenIds
from services.embedding.local import LocalBackend
from services.embedding.servicer import EmbeddingServicer
from services.embedding.settings import EmbeddingSettings
from services.embedding.weights import (
    DEFAULT_MODEL,
    DEFAULT_WEIGHTS_SHA256,
    WeightsMissingError,
    locate,
    verify,
)

logger = logging.getLogger(__name__)


class App:
    """The embedding service."""

    name = "embedding"

    def __init__(self, settings: EmbeddingSettings | None = None) -> None:
        self._settings = settings or EmbeddingSettings()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sequence[Contract]]:
        """Opens the backend, without its weights unless they are to be preloaded, and closes it again."""
        settings = self._settings
        backend = LocalBackend(settings.model, self._load, settings.workers)
        embedder = Embedder(backend, VectorCache(settings.cache_bytes), settings.batch_tokens)
        if settings.preload:
            await _preload(embedder)
        try:
            yield [_contract(embedder)]
        finally:
            backend.close()

    def _load(self) -> tuple[LightEncoder, str]:
        settings = self._settings
        known = DEFAULT_WEIGHTS_SHA256 if settings.model == DEFAULT_MODEL else None
        folder = locate(settings.model_dir)
        digest = verify(folder, settings.weights_sha256 or known)
        return LightEncoder(folder), digest


async def _preload(embedder: Embedder[TokenIds]) -> None:
    try:
        await embedder.load()
    except WeightsMissingError as missing:
        # The service starts all the same: whoever calls it is told what to do.
        logger.warning("weights missing", extra={"fields": {"problem": str(missing)}})


def _contract(embedder: Embedder[TokenIds]) -> Contract:
    return Contract.make(
        embedding_service_pb2.DESCRIPTOR.services_by_name["EmbeddingService"],
        embedding_service_pb2_grpc.add_EmbeddingServiceServicer_to_server,
        EmbeddingServicer(embedder),
        name="light-embedding",
        version=version("dramaturg"),
        description=f"Sentence embeddings by {embedder.model}, in NumPy.",
        capabilities=["truncates"],
    )
