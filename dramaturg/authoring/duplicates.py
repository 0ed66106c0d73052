"""Finds near-duplicates of earlier texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest
from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from dramaturg.service.errors import from_rpc_error

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub

BATCH = 256
"""How many texts are embedded in one call."""
SMALL_BATCH = 16
"""How many texts are embedded in one call after a call with more of them ran out of time."""
_PATIENCE = 3
"""The timeout of a repeated call, in timeouts of the first."""


@dataclass(frozen=True)
class Duplicates:
    """Which texts repeat an earlier one."""

    earlier: Sequence[int | None]
    """For each text the index of the earlier text that it repeats. None: it is new."""
    unchecked: str
    """Why only equal words count as duplicates for some texts. Empty: all were embedded and compared."""
    uncompared: Sequence[int] = ()
    """The indices of the texts that are compared by their words only, ascending."""


async def find_duplicates(
    channel: grpc.aio.Channel, texts: Sequence[str], threshold: float, *, timeout: float = 120
) -> Duplicates:
    """Compares every text with the earlier ones that are new themselves.

    Texts of equal words repeat each other; where embeddings can be had, so do those whose vectors' cosine is
    at least the threshold. A call that runs out of time is repeated once, as calls of ``SMALL_BATCH`` texts
    with three times the timeout. After any other failure, and after a repeated call that fails, the texts
    that have no vector yet are compared by their words.

    Args:
        channel: Where EmbeddingService may be reached.
        texts: The texts.
        threshold: The cosine, in [-1, 1].
        timeout: The timeout of the first call for a text, in seconds.
    """
    vectors, unchecked = await _embed(EmbeddingServiceStub(channel), texts, timeout)
    uncompared = [index for index, vector in enumerate(vectors) if vector is None]
    return Duplicates(repeats(texts, vectors, threshold), unchecked, uncompared)


def repeats(
    texts: Sequence[str], vectors: Sequence[Sequence[float] | None] | None, threshold: float
) -> Sequence[int | None]:
    """For each text the index of the first earlier new text that it repeats.

    Args:
        texts: The texts.
        vectors: A vector of length 1 for each; None for a text of which only words are compared. None: only
            words are compared.
        threshold: The cosine at which vectors repeat each other.
    """
    words = [" ".join(text.casefold().split()) for text in texts]
    found: list[int | None] = []
    new: list[int] = []
    for index, text in enumerate(words):
        same = (
            one
            for one in new
            if words[one] == text
            or (vectors is not None and _are_near(vectors[one], vectors[index], threshold))
        )
        earlier = next(same, None)
        if earlier is None:
            new.append(index)
        found.append(earlier)
    return found


async def _embed(
    stub: EmbeddingServiceAsyncStub, texts: Sequence[str], timeout: float
) -> tuple[list[Sequence[float] | None], str]:
    """The vectors, None for each text without one; and the failure that ended the calls."""
    vectors: list[Sequence[float] | None] = []
    batch, patience = BATCH, 1
    while len(vectors) < len(texts):
        some = texts[len(vectors) : len(vectors) + batch]
        try:
            response = await stub.Embed(EmbedRequest(texts=some), timeout=patience * timeout)
        except grpc.aio.AioRpcError as failure:
            if failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED and batch == BATCH:
                batch, patience = SMALL_BATCH, _PATIENCE
                continue
            why = from_rpc_error(failure).message
        else:
            if len(response.embeddings) == len(some):
                vectors += [list(one.values) for one in response.embeddings]
                continue
            why = f"answered {len(some)} texts with {len(response.embeddings)} vectors"
        return [*vectors, *[None] * (len(texts) - len(vectors))], f"EmbeddingService: {why}"
    return vectors, ""


def _are_near(one: Sequence[float] | None, other: Sequence[float] | None, threshold: float) -> bool:
    if one is None or other is None:
        return False
    return sum(first * second for first, second in zip(one, other, strict=True)) >= threshold
