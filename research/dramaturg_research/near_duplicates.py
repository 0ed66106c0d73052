"""Finds near-duplicates of earlier texts by their embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import grpc

from dramaturg.authoring import repeats
from dramaturg.embedding import embed_texts, embed_through

BY_MEANING, BY_WORDS = "meaning", "words"
"""How a text was compared with the earlier ones: also by the meaning, or by equal words only."""


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
    at least the threshold. Texts that have no vector (``dramaturg.embedding``) are compared by their words.

    Args:
        channel: Where EmbeddingService may be reached.
        texts: The texts.
        threshold: The cosine, in [-1, 1].
        timeout: The timeout of the first call for a text, in seconds.
    """
    found = await embed_texts(embed_through(channel, timeout), texts)
    uncompared = [index for index, vector in enumerate(found.vectors) if vector is None]
    unchecked = f"EmbeddingService {found.failure}" if found.failure else ""
    return Duplicates(repeats(texts, found.vectors, threshold), unchecked, uncompared)
