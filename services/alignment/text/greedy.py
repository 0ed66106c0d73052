"""Greedy matching of token vectors, as BERTScore does it (Zhang et al. 2020, section 3).

Each token of one text is matched with the nearest token of the other by cosine. The mean of the candidate's
best cosines is the precision, the mean of the reference's the recall. This is not BERTScore and
not named so: words have no idf weights, values are not rescaled against a baseline, and
the vectors are the last hidden states of the model of EmbeddingService. Values of different models are not
comparable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from services.alignment.text.metric import Metric, NotComputed, TextPair, Undefined, blank
from services.alignment.text.similarity import (
    MAX_CHARACTERS,
    MAX_TOKEN_TEXTS,
    NO_EMBEDDER,
    Embedder,
    EmbeddingError,
    Matrix,
    TooManyTokensError,
    cut_off,
)
from services.alignment.workers import Checkpoint

_ROWS_AT_ONCE = 1024


class Matched(NamedTuple):
    """Precision and recall of greedily matched tokens, in [0, 1]."""

    precision: float
    """The mean over the candidate's tokens of the largest cosine with one of the reference's."""
    recall: float
    """The mean over the reference's tokens of the largest cosine with one of the candidate's."""

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 0 if both are 0."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def match(candidate: Matrix, reference: Matrix) -> Matched:
    """Matches the tokens of two texts; a mean below 0 is 0.

    Args:
        candidate: The vectors of its tokens, one or more, (tokens, dimension), each of length 1.
        reference: Those of the other text.
    """
    nearest = np.full(len(reference), -1, dtype=np.float32)
    total = 0.0
    # All cosines of two long texts would take gigabytes.
    for start in range(0, len(candidate), _ROWS_AT_ONCE):
        cosines = candidate[start : start + _ROWS_AT_ONCE] @ reference.T
        total += float(cosines.max(axis=1).sum(dtype=np.float64))
        np.maximum(nearest, cosines.max(axis=0), out=nearest)
    return Matched(_share(total / len(candidate)), _share(float(nearest.mean(dtype=np.float64))))


def _share(mean: float) -> float:
    return min(1.0, max(0.0, mean))


GREEDY: Mapping[str, str] = MappingProxyType(
    {
        "embedding-greedy": "f1",
        "embedding-greedy-precision": "precision",
        "embedding-greedy-recall": "recall",
    }
)
"""The metrics, each with the figure of ``Matched`` that it is."""

Matches = list[Matched | Undefined]
Run = Callable[[Callable[[Checkpoint], Matches]], Awaitable[Matches]]
"""Runs a function in a thread."""


@dataclass(frozen=True)
class GreedyMatching:
    """A metric that reads one value of precomputed matches."""

    figure: str
    """Which one, as ``Matched`` names it."""
    matched: Mapping[TextPair, Matched | Undefined]
    """Every pair that will be scored."""
    model: str
    truncated: int
    """How many texts were cut off."""
    count: int
    """How many texts there are."""

    @property
    def method(self) -> str:
        name = "F1" if self.figure == "f1" else self.figure
        return (
            f"{name} of greedy matching by cosine of the token vectors (last hidden states) of {self.model}, "
            "negative means as 0; no idf weights, no rescaling; not BERTScore"
            + cut_off(self.truncated, self.count)
        )

    def score(self, candidate: str, reference: str) -> float | Undefined:
        found = self.matched[TextPair(candidate, reference)]
        return found if isinstance(found, Undefined) else float(getattr(found, self.figure))


async def greedy_matching(
    pairs: Iterable[TextPair], embedder: Embedder | None, run: Run
) -> Mapping[str, Metric]:
    """Matches all pairs, a few at a time: token vectors are hundreds of times as large as their text's.

    Args:
        pairs: What will be compared.
        embedder: Gives the vectors; ``None``: there is none.
        run: Has a thread compute.

    Returns:
        The metrics of ``GREEDY``.
    """
    if embedder is None:
        return dict.fromkeys(GREEDY, NO_EMBEDDER)
    matcher = _Matcher(embedder, run)
    try:
        for group in _groups(dict.fromkeys(pairs)):
            await matcher.add(group)
    except EmbeddingError as error:
        return dict.fromkeys(GREEDY, NotComputed(str(error)))
    return {
        name: GreedyMatching(
            figure, matcher.matched, matcher.model, sum(matcher.truncated.values()), len(matcher.truncated)
        )
        for name, figure in GREEDY.items()
    }


class _Matcher:
    def __init__(self, embedder: Embedder, run: Run) -> None:
        self.matched: dict[TextPair, Matched | Undefined] = {}
        self.truncated: dict[str, bool] = {}
        self.model = ""
        self._embedder = embedder
        self._run = run

    async def add(self, group: Sequence[TextPair]) -> None:
        """Matches pairs whose texts fit into one request; those of an answer that would not are halved."""
        wanted = list(dict.fromkeys(text for pair in group if not blank(*pair) for text in pair))
        try:
            matrices = await self._embed(wanted)
        except TooManyTokensError as error:
            if len(group) == 1:
                self.matched[group[0]] = Undefined(str(error))
                return
            for half in (group[: len(group) // 2], group[len(group) // 2 :]):
                await self.add(half)
            return
        self.matched |= zip(
            group, await self._run(lambda check: _match_all(group, matrices, check)), strict=True
        )

    async def _embed(self, texts: Sequence[str]) -> Mapping[str, Matrix]:
        if not texts:
            return {}
        embedded = await self._embedder.embed_tokens(texts)
        self.truncated |= zip(texts, embedded.truncated, strict=True)
        self.model = embedded.model
        return dict(zip(texts, embedded.matrices, strict=True))


def _match_all(group: Sequence[TextPair], matrices: Mapping[str, Matrix], checkpoint: Checkpoint) -> Matches:
    found: Matches = []
    for pair in group:
        checkpoint()
        if empty := blank(*pair):
            found.append(empty)
            continue
        candidate, reference = matrices[pair.candidate], matrices[pair.reference]
        unread = [name for name, one in (("candidate", candidate), ("reference", reference)) if not len(one)]
        found.append(
            Undefined(f"the {unread[0]} has no tokens that the model reads")
            if unread
            else match(candidate, reference)
        )
    return found


def _groups(pairs: Iterable[TextPair]) -> Iterator[list[TextPair]]:
    """Groups pairs whose texts fit into one request."""
    group: list[TextPair] = []
    texts: set[str] = set()
    for pair in pairs:
        together = texts | set(pair)
        if group and (len(together) > MAX_TOKEN_TEXTS or sum(map(len, together)) > MAX_CHARACTERS):
            yield group
            group, together = [], set(pair)
        group.append(pair)
        texts = together
    if group:
        yield group
