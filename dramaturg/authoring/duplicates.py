"""Finds near-duplicates of earlier texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import grpc

from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest
from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from dramaturg.service.errors import from_rpc_error

BATCH = 256
"""How many texts are embedded in one call."""


@dataclass(frozen=True)
class Duplicates:
    """Which texts repeat an earlier one."""

    earlier: Sequence[int | None]
    """For each text the index of the earlier text that it repeats. None: it is new."""
    unchecked: str
    """Why only equal words count as duplicates. Empty: the texts were embedded and compared."""


async def find_duplicates(
    channel: grpc.aio.Channel, texts: Sequence[str], threshold: float, *, timeout: float = 120
) -> Duplicates:
    """Compares every text with the earlier ones that are new themselves.

    Texts of equal words repeat each other; where embeddings can be had, so do those whose vectors' cosine is
    at least the threshold.

    Args:
        channel: Where EmbeddingService may be reached.
        texts: The texts.
        threshold: The cosine, in [-1, 1].
        timeout: The timeout of one call, in seconds.
    """
    try:
        vectors = await _embed(channel, texts, timeout)
    except grpc.aio.AioRpcError as failure:
        why = f"EmbeddingService: {from_rpc_error(failure).message}"
        return Duplicates(repeats(texts, None, threshold), why)
    return Duplicates(repeats(texts, vectors, threshold), "")


def repeats(
    texts: Sequence[str], vectors: Sequence[Sequence[float]] | None, threshold: float
) -> Sequence[int | None]:
    """For each text the index of the first earlier new text that it repeats.

    Args:
        texts: The texts.
        vectors: A vector of length 1 for each. None: only words are compared.
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
            or (vectors is not None and _cosine(vectors[one], vectors[index]) >= threshold)
        )
        earlier = next(same, None)
        if earlier is None:
            new.append(index)
        found.append(earlier)
    return found


async def _embed(channel: grpc.aio.Channel, texts: Sequence[str], timeout: float) -> list[Sequence[float]]:
    stub = EmbeddingServiceStub(channel)
    vectors: list[Sequence[float]] = []
    for start in range(0, len(texts), BATCH):
        response = await stub.Embed(EmbedRequest(texts=texts[start : start + BATCH]), timeout=timeout)
        vectors += [list(one.values) for one in response.embeddings]
    return vectors


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(first * second for first, second in zip(one, other, strict=True))
