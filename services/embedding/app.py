"""Wires the embedding service together."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from dramaturg.api.embedding.v1 import embedding_service_pb2, embedding_service_pb2_grpc
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from services.embedding.backend import EmbeddingBackend
from services.embedding.embedder import Embedder, VectorCache
from services.embedding.light import LightEncoder
from services.embedding.local import Encoder, LocalBackend
from services.embedding.sentence_transformer import SentenceTransformerEncoder, load_sentence_transformer
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

_ENGINES = {
    "light": "NumPy",
    "sentence-transformers": "sentence-transformers",
    "openai": "an OpenAI-compatible endpoint",
}


class App:
    name = "embedding"

    def __init__(self, settings: EmbeddingSettings | None = None) -> None:
        self._settings = settings or EmbeddingSettings()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sequence[Contract]]:
        """Opens the backend, without its weights unless they are to be preloaded, and closes it again."""
        settings = self._settings
        backend = self._backend()
        embedder = Embedder(backend, VectorCache(settings.cache_bytes), settings.batch_tokens)
        if settings.preload:
            await _preload(embedder)
        try:
            yield [_contract(embedder, settings.engine)]
        finally:
            await backend.close()

    def _backend(self) -> EmbeddingBackend[Any]:
        settings = self._settings
        if settings.engine == "openai":
            # The import takes a second; it happens on first use only.
            from services.embedding.endpoint import open_endpoint

            return open_endpoint(settings, os.environ)
        load: Callable[[], tuple[Encoder[Any], str]] = (
            self._load if settings.engine == "light" else self._load_library
        )
        return LocalBackend(settings.model, load, settings.workers)

    def _load(self) -> tuple[LightEncoder, str]:
        settings = self._settings
        folder = locate(settings.model_dir)
        digest = verify(folder, settings.weights_sha256 or self._known_sha256)
        return LightEncoder(folder), digest

    def _load_library(self) -> tuple[SentenceTransformerEncoder, str]:
        settings = self._settings
        hub = settings.model_dir is None and settings.model != DEFAULT_MODEL
        source = settings.model if hub else locate(settings.model_dir)
        return load_sentence_transformer(source, settings.weights_sha256 or self._known_sha256)

    @property
    def _known_sha256(self) -> str | None:
        return DEFAULT_WEIGHTS_SHA256 if self._settings.model == DEFAULT_MODEL else None


async def _preload(embedder: Embedder[Any]) -> None:
    try:
        await embedder.load()
    except (WeightsMissingError, ServiceError) as problem:
        # The service starts anyway; each call fails with instructions.
        logger.warning("the model cannot be loaded", extra={"fields": {"problem": str(problem)}})


def _contract(embedder: Embedder[Any], engine: str) -> Contract:
    return Contract.make(
        embedding_service_pb2.DESCRIPTOR.services_by_name["EmbeddingService"],
        embedding_service_pb2_grpc.add_EmbeddingServiceServicer_to_server,
        EmbeddingServicer(embedder),
        name=f"{engine}-embedding",
        version=version("dramaturg"),
        description=f"Sentence embeddings by {embedder.model}, through {_ENGINES[engine]}.",
        capabilities=["truncates", *(["tokens"] if embedder.gives_tokens else [])],
    )
