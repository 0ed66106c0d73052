"""An endpoint that speaks the OpenAI embeddings protocol, through the ``openai`` package."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

import grpc
import numpy as np
import openai
from opentelemetry.trace import SpanKind

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.errors import ServiceError
from dramaturg.service.logs import redact, secrets_of
from dramaturg.service.settings import SettingsError
from dramaturg.service.telemetry import tracing
from dramaturg.service.telemetry.tracing import known_as, server_attributes
from services.embedding.backend import Floats, ModelFacts, Prepared, TokenChoice, TokenVectors
from services.embedding.settings import EmbeddingSettings, EndpointSettings

_OPERATION = "embeddings"
_UNUSED_KEY = "none"  # the package insists on a key; endpoints without credentials ignore it
_BLANK = " "  # the protocol has no empty input, our contract has
_CHARACTERS_PER_TOKEN = 4
_MAX_MESSAGE_LENGTH = 300

# One line a request, with its address: the service's own log says more with less.
logging.getLogger("httpx2").setLevel(logging.WARNING)


class EndpointBackend:
    """An ``EmbeddingBackend`` over an endpoint. The package retries what may pass, a bounded number of times.

    The protocol does not report a model's window, so texts are truncated at a configured number of
    characters.

    Args:
        model: The model's name, at the endpoint and here.
        settings: The endpoint.
        api_key: Its key. Empty: none.
        workers: How many batches it is sent at once.
    """

    def __init__(self, model: str, settings: EndpointSettings, api_key: str, workers: int) -> None:
        self._model = model
        self._settings = settings
        self._api_key = api_key
        self._workers = workers
        self._client: openai.AsyncOpenAI | None = None
        self._facts: ModelFacts | None = None
        self._loading = asyncio.Lock()

    @property
    def model(self) -> str:
        return self._model

    @property
    def workers(self) -> int:
        """The number of concurrent requests."""
        return self._workers

    @property
    def gives_tokens(self) -> bool:
        """Always false: the protocol has no token vectors."""
        return False

    async def load(self) -> ModelFacts:
        """Learns the dimension from a first vector; what fails is tried again by the next call.

        Raises:
            ServiceError: The endpoint gives none.
        """
        async with self._loading:
            if self._facts is None:
                self._facts = ModelFacts(self._model, (await self._embed([_BLANK])).shape[1])
        return self._facts

    async def prepare(self, texts: Sequence[str]) -> Sequence[Prepared[str]]:
        """Truncates long texts and estimates token counts."""
        most = self._settings.max_characters
        return [
            Prepared(text[:most] or _BLANK, len(text[:most]) // _CHARACTERS_PER_TOKEN + 1, len(text) > most)
            for text in texts
        ]

    async def encode(self, inputs: Sequence[str]) -> Floats:
        """Encodes one batch into vectors of length 1, (batch, dimension).

        Raises:
            ServiceError: The endpoint failed, or gave no vectors that can be compared.
        """
        most = self._settings.batch_texts
        parts = [await self._embed(inputs[start : start + most]) for start in range(0, len(inputs), most)]
        vectors = np.concatenate(parts)
        if self._facts is not None and vectors.shape[1] != self._facts.dimension:
            raise self._broken(f"vectors of {vectors.shape[1]} members after some of {self._facts.dimension}")
        return vectors

    async def encode_tokens(self, inputs: Sequence[str], choice: TokenChoice) -> Sequence[TokenVectors]:
        """There are none.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("the OpenAI embeddings protocol has no vectors of tokens")

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _embed(self, texts: Sequence[str]) -> Floats:
        attributes: tracing.Attributes = {
            "gen_ai.operation.name": _OPERATION,
            "gen_ai.provider.name": known_as(self._settings.base_url) or "openai",
            **server_attributes(self._settings.base_url),
            "gen_ai.request.model": self._model,
        }
        with tracing.span(f"{_OPERATION} {self._model}", attributes, SpanKind.CLIENT) as span:
            try:
                response = await self._open().embeddings.create(
                    model=self._model,
                    input=list(texts),
                    encoding_format="float",
                    extra_headers=tracing.headers(),
                )
            except openai.APIError as error:
                tracing.fail(span, type(error).__name__)
                raise self._fault(error) from None
            # Servers of other makers leave it out.
            if isinstance(tokens := getattr(response.usage, "prompt_tokens", None), int):
                span.set_attribute("gen_ai.usage.input_tokens", tokens)
        entries = sorted(response.data or (), key=lambda entry: entry.index)
        if [entry.index for entry in entries] != list(range(len(texts))):
            raise self._broken(f"{len(entries)} vectors for {len(texts)} texts")
        if len({len(entry.embedding) for entry in entries}) != 1:
            raise self._broken("vectors of different lengths")
        vectors = np.array([entry.embedding for entry in entries], dtype=np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise self._broken("a vector whose length is 0 or no number")
        unit: Floats = vectors / lengths
        return unit

    def _open(self) -> openai.AsyncOpenAI:
        if self._client is None:
            self._client = openai.AsyncOpenAI(
                base_url=self._settings.base_url,
                api_key=self._api_key or _UNUSED_KEY,
                max_retries=self._settings.retries,
                timeout=self._settings.timeout_seconds,
            )
            # The package takes them from the environment; they name accounts of its own vendor.
            self._client.organization = self._client.project = None
        return self._client

    def _broken(self, what: str) -> ServiceError:
        return ServiceError(
            grpc.StatusCode.UNAVAILABLE,
            error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE,
            f"the embeddings endpoint gave {what}",
            metadata={"provider": self._settings.base_url},
        )

    def _fault(self, error: openai.APIError) -> ServiceError:
        code, reason = grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE
        said = f"cannot be reached: {type(error).__name__}"
        if isinstance(error, openai.APIStatusError):
            # A provider may quote a part of the key in refusing it: those words stay there.
            said = f"answered with HTTP status {error.status_code}: {error.message[:_MAX_MESSAGE_LENGTH]}"
            if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
                said = f"refused the credentials (HTTP status {error.status_code})"
                code = grpc.StatusCode.FAILED_PRECONDITION
                reason = error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED
            elif isinstance(error, openai.RateLimitError):
                code = grpc.StatusCode.RESOURCE_EXHAUSTED
                reason = error_reason_pb2.ERROR_REASON_PROVIDER_RATE_LIMITED
            elif error.status_code < 500:
                code = grpc.StatusCode.FAILED_PRECONDITION
                reason = error_reason_pb2.ERROR_REASON_PROVIDER_REJECTED
        said = redact(said, secrets_of([self._api_key]))
        return ServiceError(
            code,
            reason,
            f"the embeddings endpoint {said}",
            metadata={"provider": self._settings.base_url, "model": self._model},
        )


def open_endpoint(settings: EmbeddingSettings, environment: Mapping[str, str]) -> EndpointBackend:
    """The backend of the configured endpoint, with its key.

    Raises:
        SettingsError: The key is not there.
    """
    key = _key(settings.endpoint, environment)
    return EndpointBackend(settings.model, settings.endpoint, key, settings.workers)


def _key(settings: EndpointSettings, environment: Mapping[str, str]) -> str:
    if settings.api_key_env:
        key = environment.get(settings.api_key_env, "").strip()
        if not key:
            raise SettingsError(
                f"embedding.endpoint.api_key_env: the variable {settings.api_key_env} is not set"
            )
        return key
    if settings.api_key_file is None:
        return ""
    try:
        return settings.api_key_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"embedding.endpoint.api_key_file: {error}") from error
