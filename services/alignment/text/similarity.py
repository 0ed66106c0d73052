"""The similarity of sentence vectors: one vector a text, so that this is not BERTScore (see ``greedy``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from services.alignment.text.metric import NotComputed, Undefined, blank
from services.alignment.text.vectors import (
    MOST_CHARACTERS,
    NO_EMBEDDER,
    Embedder,
    EmbeddingError,
    Vector,
    cut_off,
)

_BATCH_TEXTS = 1024


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
        return method + cut_off(self.truncated, len(self.vectors))

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """See ``Metric``."""
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
        if batch and (len(batch) == _BATCH_TEXTS or characters + len(text) > MOST_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch
