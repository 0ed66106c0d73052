"""The vectors of texts, from any EmbeddingService."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import grpc

from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedResponse
from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from dramaturg.service.errors import from_rpc_error

BATCH = 256
"""The number of texts of one call."""
SMALL_BATCH = 16
"""The number of texts of one call after a call with more of them ran out of time."""
REPEATED_TIMEOUT = 3
"""The timeout of a repeated call, in timeouts of the first."""

_LENGTH_TOLERANCE = 1e-3


class EmbedFailure(NamedTuple):
    """Why a call has no answer."""

    explanation: str
    """A predicate whose subject is the service."""
    timed_out: bool
    """Whether the call ran out of time."""


Embed = Callable[[EmbedRequest, float], Awaitable[EmbedResponse | EmbedFailure]]
"""Makes one call. The number multiplies the ordinary timeout."""


class TextVectors(NamedTuple):
    """The vectors of texts."""

    vectors: Sequence[Sequence[float] | None]
    """A vector of length 1 for each text. None: the text has none."""
    failure: str
    """Why texts have no vector, a predicate whose subject is the service. Empty: all have one."""
    model: str
    """The model of the vectors, as the service states it. Empty: there are none."""
    weights_sha256: str
    """The digest of its weights, as the service states it."""


async def embed_texts(embed: Embed, texts: Sequence[str], model: str = "") -> TextVectors:
    """Embeds texts, ``BATCH`` of them at a time.

    A call that runs out of time is repeated once, as calls of ``SMALL_BATCH`` texts with
    ``REPEATED_TIMEOUT`` times the timeout. After any other failure, and after a repeated call that fails,
    the texts that have no vector yet have none.

    Args:
        embed: Makes one call.
        texts: The texts.
        model: The model. Empty: the default of the service.
    """
    vectors: list[Sequence[float] | None] = []
    batch, factor = BATCH, 1
    answered, weights, failure = "", "", ""
    while len(vectors) < len(texts):
        some = texts[len(vectors) : len(vectors) + batch]
        answer = await embed(EmbedRequest(texts=some, model=model), factor)
        if isinstance(answer, EmbedFailure):
            if answer.timed_out and batch == BATCH:
                batch, factor = SMALL_BATCH, REPEATED_TIMEOUT
                continue
            failure = answer.explanation
            break
        found = [list(one.values) for one in answer.embeddings]
        dimensions = {len(vector) for vector in (*found, *vectors[:1]) if vector is not None}
        if len(found) != len(some) or len(dimensions) != 1 or not all(map(_is_unit, found)):
            failure = "answered with other vectors than one of length 1 for each text"
            break
        vectors += found
        answered, weights = answer.model, answer.weights_sha256
    return TextVectors([*vectors, *[None] * (len(texts) - len(vectors))], failure, answered, weights)


def embed_through(channel: grpc.aio.Channel, timeout: float) -> Embed:
    """Calls on a channel.

    Args:
        channel: A channel to EmbeddingService.
        timeout: The ordinary timeout, in seconds.
    """
    stub = EmbeddingServiceStub(channel)

    async def embed(request: EmbedRequest, factor: float) -> EmbedResponse | EmbedFailure:
        try:
            return await stub.Embed(request, timeout=factor * timeout)
        except grpc.aio.AioRpcError as failure:
            timed_out = failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            error = from_rpc_error(failure)
            return EmbedFailure(f"failed with {error.code.name}: {error.message}", timed_out)

    return embed


def _is_unit(vector: Sequence[float]) -> bool:
    # Also false for NaN.
    return abs(math.hypot(*vector) - 1) <= _LENGTH_TOLERANCE
