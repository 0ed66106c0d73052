"""The similarity of sentence vectors.

This is not BERTScore, which matches the vectors of tokens: EmbeddingService gives one vector a text. With an
answer that held a vector for each token, its greedy matching could stand beside this under a name of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from services.alignment.text.metric import Undefined, blank

Vector = NDArray[np.float32]

# One request of EmbeddingService takes 4,096 texts and, by default, 16 MiB; a character has up to 4 bytes.
_BATCH_TEXTS = 1024
_BATCH_CHARACTERS = 2_000_000


@dataclass(frozen=True)
class Embedded:
    """Texts as vectors of length 1."""

    vectors: Sequence[Vector]
    """One for each text."""
    truncated: int
    """How many texts were longer than the model's window."""
    model: str


class EmbeddingError(Exception):
    """No vectors could be had; the message says why."""


class Embedder(Protocol):
    """Turns texts into vectors."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Embeds texts, within the bounds of one request.

        Raises:
            EmbeddingError: It could not be reached, or refused.
        """


class NoSimilarity:
    """Stands where there are no vectors.

    Args:
        reason: Why there are none.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    @property
    def method(self) -> str:
        """See ``Metric``."""
        return f"not computed: {self._reason}"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """Undefined for all texts."""
        del candidate, reference
        return Undefined(self._reason)


@dataclass(frozen=True)
class SentenceSimilarity:
    """The cosine of two texts' vectors, 0 where it is negative."""

    vectors: Mapping[str, Vector]
    """The vector of every text that will be compared."""
    model: str
    truncated: int

    @property
    def method(self) -> str:
        """See ``Metric``."""
        method = f"cosine of the sentence vectors of {self.model}, negative values as 0; not BERTScore"
        if self.truncated:
            method += (
                f"; {self.truncated} of {len(self.vectors)} texts were longer than its window and cut off"
            )
        return method

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """See ``Metric``."""
        if empty := blank(candidate, reference):
            return empty
        return min(1.0, max(0.0, float(self.vectors[candidate] @ self.vectors[reference])))


async def similarity(texts: Iterable[str], embedder: Embedder | None) -> SentenceSimilarity | NoSimilarity:
    """Embeds all texts, each once.

    Args:
        texts: What will be compared.
        embedder: Gives the vectors; ``None``: there is none.
    """
    if embedder is None:
        return NoSimilarity("no EmbeddingService is configured (setting embedding_target)")
    vectors: dict[str, Vector] = {}
    truncated, model = 0, ""
    try:
        for batch in _batches(dict.fromkeys(text for text in texts if text.strip())):
            embedded = await embedder.embed(batch)
            vectors.update(zip(batch, embedded.vectors, strict=True))
            truncated += embedded.truncated
            model = embedded.model
    except EmbeddingError as error:
        return NoSimilarity(str(error))
    return SentenceSimilarity(vectors, model, truncated)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        if batch and (len(batch) == _BATCH_TEXTS or characters + len(text) > _BATCH_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch
