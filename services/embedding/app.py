"""The embedding service: answers EmbeddingService, and its wiring."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.embedding.v1 import embedding_service_pb2, embedding_service_pb2_grpc
from dramaturg.api.embedding.v1.embedding_service_pb2 import (
    EmbedRequest,
    EmbedResponse,
    EmbedTokensRequest,
    EmbedTokensResponse,
)
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, invalid, too_large
from services.embedding.backend import EmbeddingBackend, TokenChoice
from services.embedding.embedder import (
    MAX_TOKEN_BYTES,
    Embedded,
    EmbeddedTokens,
    Embedder,
    NoSuchLayerError,
    TokensTooLargeError,
    VectorCache,
)
from services.embedding.light import LightEncoder
from services.embedding.local import (
    Encoder,
    LocalBackend,
    SentenceTransformerEncoder,
    load_sentence_transformer,
)
from services.embedding.settings import EmbeddingSettings
from services.embedding.weights import (
    DEFAULT_MODEL,
    DEFAULT_WEIGHTS_SHA256,
    WeightsMissingError,
    locate,
    verify,
)

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
            message = f"texts: {error}; ask for fewer at once"
            raise too_large(message, limit=MAX_TOKEN_BYTES, actual=error.actual) from error
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
