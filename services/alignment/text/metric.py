"""The interface of text metrics, and what metrics of vectors need of an embedding service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class TextPair(NamedTuple):
    """A text and its reference."""

    candidate: str
    reference: str


@dataclass(frozen=True)
class Undefined:
    """An undefined score with its reason."""

    reason: str


class Metric(Protocol):
    """Compares a candidate with a reference."""

    @property
    def method(self) -> str:
        """How the metric is computed: library, version, settings, deviations."""

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """The score, in [0, 1] unless the metric says otherwise; higher is more alike."""


def blank(candidate: str, reference: str) -> Undefined | None:
    """The undefined score of a blank text; ``None`` if neither is blank."""
    for name, text in (("candidate", candidate), ("reference", reference)):
        if not text.strip():
            return Undefined(f"the {name} is empty")
    return None


class NotComputed:
    """A metric without vectors: undefined for all texts.

    Args:
        reason: Why there are no vectors.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    @property
    def method(self) -> str:
        return f"not computed: {self._reason}"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """Undefined for all texts."""
        del candidate, reference
        return Undefined(self._reason)


Vector = NDArray[np.float32]
"""(dimension,), of length 1."""
Matrix = NDArray[np.float32]
"""(tokens, dimension), each row of length 1."""

MAX_CHARACTERS = 2_000_000
"""The most characters of one request: by default it may have 16 MiB, and a character up to 4 bytes."""
MAX_TOKEN_TEXTS = 32
"""The most texts of one request for tokens. EmbeddingService takes twice as many; their vectors are all in
memory at once."""

NO_EMBEDDER = NotComputed("no EmbeddingService is configured (setting embedding_target)")
"""The metric of a service without vectors."""


@dataclass(frozen=True)
class Embedded:
    """Unit vectors of texts."""

    vectors: Sequence[Vector]
    """One for each text."""
    truncated: int
    """How many texts were longer than the model's window."""
    model: str


@dataclass(frozen=True)
class EmbeddedTokens:
    """Unit vectors of the tokens of texts."""

    matrices: Sequence[Matrix]
    """One for each text, all of one dimension; without rows where the model reads nothing in it."""
    truncated: Sequence[bool]
    """Which texts were longer than the model's window."""
    model: str
    layer: int = 0
    """The layer whose hidden states they are, from 1. 0: not stated."""
    tokens: Sequence[Sequence[str]] = ()
    """The tokens of each text."""
    special: Sequence[tuple[int, int]] = ()
    """How many of the first and last tokens of each text the model added."""


class EmbeddingError(Exception):
    """Embedding failed; the message gives the reason."""


class TooManyTokensError(EmbeddingError):
    """The texts have too many tokens for one response; fewer texts may succeed."""


class Embedder(Protocol):
    """Embeds texts."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Embeds texts, within the bounds of one request.

        Raises:
            EmbeddingError: It could not be reached, or refused.
        """

    async def embed_tokens(self, texts: Sequence[str], layer: int | None = None) -> EmbeddedTokens:
        """Embeds each token of texts, at most ``MAX_TOKEN_TEXTS`` of them.

        Args:
            texts: The texts.
            layer: The layer whose hidden states are wanted, from 1, 0 for the last; the tokens that the model
                adds at the ends are included. None: the last, without them.

        Raises:
            EmbeddingError: It could not be reached, refused, or has no vectors of tokens.
        """


def cut_off(truncated: int, count: int) -> str:
    """What a method says of texts that a model saw in part; empty where it saw all.

    Args:
        truncated: How many it cut off.
        count: How many texts there are.
    """
    return f"; {truncated} of {count} texts were longer than its window and cut off" if truncated else ""


_BATCH_TEXTS = 1024


@dataclass(frozen=True)
class SentenceSimilarity:
    """The cosine of sentence vectors, clipped at 0."""

    vectors: Mapping[str, Vector]
    """The vector of every text that will be compared."""
    model: str
    truncated: int

    @property
    def method(self) -> str:
        method = f"cosine of the sentence vectors of {self.model}, negative values as 0; not BERTScore"
        return method + cut_off(self.truncated, len(self.vectors))

    def score(self, candidate: str, reference: str) -> float | Undefined:
        if empty := blank(candidate, reference):
            return empty
        return min(1.0, max(0.0, float(self.vectors[candidate] @ self.vectors[reference])))


async def similarity(texts: Iterable[str], embedder: Embedder | None) -> SentenceSimilarity | NotComputed:
    """Embeds all texts, each once.

    Args:
        texts: What will be compared.
        embedder: Gives the vectors; ``None``: there is none.
    """
    if embedder is None:
        return NO_EMBEDDER
    vectors: dict[str, Vector] = {}
    truncated, model = 0, ""
    try:
        for batch in _batches(dict.fromkeys(text for text in texts if text.strip())):
            embedded = await embedder.embed(batch)
            vectors.update(zip(batch, embedded.vectors, strict=True))
            truncated += embedded.truncated
            model = embedded.model
    except EmbeddingError as error:
        return NotComputed(str(error))
    return SentenceSimilarity(vectors, model, truncated)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        if batch and (len(batch) == _BATCH_TEXTS or characters + len(text) > MAX_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch
