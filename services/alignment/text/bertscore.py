"""Scores of token vectors: greedy matching, and BERTScore as the package bert-score computes it.

Greedy matching is that of Zhang et al. (2020, section 3): each token of one text is matched with the nearest
token of the other by cosine. The mean of the candidate's best cosines is the precision, the mean of the
reference's the recall. The tokens at the ends of a text match none, negative means are 0, and the vectors are
always the last hidden states. Values of different models are not comparable.

BERTScore takes the hidden states of one layer, and matches the tokens at the ends ([CLS] and [SEP]) too. Its
precision and recall are weighted means: the tokens at the ends have no weight; others have 1, or their
inverse document frequency in the references of the request. Values may be rescaled against a baseline, the
values of random pairs of texts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from sys import intern
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from dramaturg.service.threads import Checkpoint
from services.alignment.text.metric import (
    MAX_CHARACTERS,
    MAX_TOKEN_TEXTS,
    NO_EMBEDDER,
    Embedder,
    EmbeddingError,
    Matrix,
    Metric,
    NotComputed,
    TextPair,
    TooManyTokensError,
    Undefined,
    Vector,
    blank,
    cut_off,
)

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
    best = largest_cosines(candidate, reference)
    return Matched(*(_share(float(one.mean(dtype=np.float64))) for one in best))


def largest_cosines(candidate: Matrix, reference: Matrix) -> tuple[Vector, Vector]:
    """For each token of two texts the largest cosine with a token of the other text."""
    own = np.empty(len(candidate), dtype=np.float32)
    nearest = np.full(len(reference), -1, dtype=np.float32)
    # All cosines of two long texts would take gigabytes.
    for start in range(0, len(candidate), _ROWS_AT_ONCE):
        cosines = candidate[start : start + _ROWS_AT_ONCE] @ reference.T
        own[start : start + len(cosines)] = cosines.max(axis=1)
        np.maximum(nearest, cosines.max(axis=0), out=nearest)
    return own, nearest


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

Match = TypeVar("Match")
Run = Callable[[Callable[[Checkpoint], list[Any]]], Awaitable[list[Any]]]
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
    matcher = Matcher(embedder, run, _match_greedily)
    try:
        await matcher.add_all(pairs)
    except EmbeddingError as error:
        return dict.fromkeys(GREEDY, NotComputed(str(error)))
    return {
        name: GreedyMatching(figure, matcher.matched, matcher.model, matcher.cut_off, matcher.text_count)
        for name, figure in GREEDY.items()
    }


class TokenMatrix(NamedTuple):
    """The tokens of a text."""

    vectors: Matrix
    tokens: Sequence[str]
    special: tuple[int, int]
    """How many of the first and last tokens the model added."""


class Matcher(Generic[Match]):
    """Matches pairs, a few at a time.

    Args:
        embedder: Gives the vectors of tokens.
        run: Has a thread compute.
        match: Matches the tokens of a candidate and a reference.
        layer: As ``Embedder.embed_tokens`` has it.
    """

    def __init__(
        self,
        embedder: Embedder,
        run: Run,
        match: Callable[[TokenMatrix, TokenMatrix], Match],
        layer: int | None = None,
    ) -> None:
        self.matched: dict[TextPair, Match | Undefined] = {}
        """Every pair."""
        self.model = ""
        self.layer = 0
        self._truncated: dict[str, bool] = {}
        self._embedder = embedder
        self._run = run
        self._match = match
        self._wanted_layer = layer

    @property
    def cut_off(self) -> int:
        """How many texts were longer than the model's window."""
        return sum(self._truncated.values())

    @property
    def text_count(self) -> int:
        return len(self._truncated)

    async def add_all(self, pairs: Iterable[TextPair]) -> None:
        """Matches pairs.

        Raises:
            EmbeddingError: There are no vectors.
        """
        for group in _groups(dict.fromkeys(pairs)):
            await self._add(group)

    async def _add(self, group: Sequence[TextPair]) -> None:
        """Matches pairs whose texts fit into one request; those of an answer that would not are halved."""
        wanted = list(dict.fromkeys(text for pair in group if not blank(*pair) for text in pair))
        try:
            texts = await self._embed(wanted)
        except TooManyTokensError as error:
            if len(group) == 1:
                self.matched[group[0]] = Undefined(str(error))
                return
            for half in (group[: len(group) // 2], group[len(group) // 2 :]):
                await self._add(half)
            return
        self.matched |= zip(
            group, await self._run(lambda check: self._match_all(group, texts, check)), strict=True
        )

    async def _embed(self, texts: Sequence[str]) -> Mapping[str, TokenMatrix]:
        if not texts:
            return {}
        embedded = await self._embedder.embed_tokens(texts, self._wanted_layer)
        self._truncated |= zip(texts, embedded.truncated, strict=True)
        self.model, self.layer = embedded.model, embedded.layer
        count = len(texts)
        parts = (embedded.matrices, embedded.tokens or [()] * count, embedded.special or [(0, 0)] * count)
        return dict(zip(texts, map(TokenMatrix, *parts), strict=True))

    def _match_all(
        self, group: Sequence[TextPair], texts: Mapping[str, TokenMatrix], checkpoint: Checkpoint
    ) -> list[Match | Undefined]:
        found: list[Match | Undefined] = []
        for pair in group:
            checkpoint()
            if empty := blank(*pair):
                found.append(empty)
                continue
            sides = {"candidate": texts[pair.candidate], "reference": texts[pair.reference]}
            unread = [name for name, one in sides.items() if len(one.vectors) <= sum(one.special)]
            found.append(
                Undefined(f"the {unread[0]} has no tokens that the model reads")
                if unread
                else self._match(sides["candidate"], sides["reference"])
            )
        return found


def _match_greedily(candidate: TokenMatrix, reference: TokenMatrix) -> Matched:
    return match(candidate.vectors, reference.vectors)


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


FIGURES = ("f1", "precision", "recall")
BERTSCORE: Mapping[str, tuple[str, bool]] = MappingProxyType(
    {
        f"bertscore{'-idf' if idf else ''}{'' if figure == 'f1' else f'-{figure}'}": (figure, idf)
        for idf, figure in product((False, True), FIGURES)
    }
)
"""The metrics, each with its figure and whether tokens have idf weights."""


@dataclass(frozen=True)
class BertScoreOptions:
    """How BERTScore is computed."""

    layer: int = 0
    """The layer, from 1. 0: the last."""
    baseline: tuple[float, float, float] | None = None
    """The precision, recall and F1 that become 0, where values are rescaled."""


DEFAULT_OPTIONS = BertScoreOptions()
"""The last layer, not rescaled."""


class _Side(NamedTuple):
    """One text of a pair, without the tokens at its ends."""

    tokens: Sequence[str]
    largest: Vector
    """The largest cosine of each token."""


class _Pair(NamedTuple):
    candidate: _Side
    reference: _Side


class _Idf:
    """Inverse document frequencies: log((N + 1) / (n + 1)), where n of N references hold the token."""

    def __init__(self, references: Iterable[Sequence[str]]) -> None:
        self._count = 0
        self._holding: Counter[str] = Counter()
        for tokens in references:
            self._count += 1
            self._holding.update(set(tokens))

    def of(self, token: str) -> float:
        return math.log((self._count + 1) / (self._holding[token] + 1))


@dataclass(frozen=True)
class BertScore:
    """A metric that reads one value of precomputed matches."""

    figure: str
    matched: Mapping[TextPair, _Pair | Undefined]
    idf: _Idf | None
    options: BertScoreOptions
    model: str
    layer: int
    cut_off: str

    @property
    def method(self) -> str:
        name = "F1" if self.figure == "f1" else self.figure
        layer = f"layer {self.layer}" if self.layer else "the last layer"
        weights = "idf weights of the request's references" if self.idf else "no idf weights"
        baseline = self.options.baseline
        rescaled = f"rescaled with the baseline {baseline}" if baseline else "not rescaled"
        return f"{name} of BERTScore with {layer} of {self.model}, {weights}, {rescaled}{self.cut_off}"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        found = self.matched[TextPair(candidate, reference)]
        if isinstance(found, Undefined):
            return found
        values: dict[str, float] = {}
        for name, side in (("precision", found.candidate), ("recall", found.reference)):
            weights = np.array([self.idf.of(token) if self.idf else 1.0 for token in side.tokens])
            if weights.sum() <= 0:
                return Undefined("all references have the tokens of a text: it has no idf weights")
            values[name] = float(weights @ side.largest) / float(weights.sum())
        total = values["precision"] + values["recall"]
        values["f1"] = 2 * values["precision"] * values["recall"] / total if total else 0.0
        if self.options.baseline is None:
            return values[self.figure]
        base = dict(zip(("precision", "recall", "f1"), self.options.baseline, strict=True))[self.figure]
        return (values[self.figure] - base) / (1 - base)


async def bertscore(
    pairs: Sequence[TextPair], embedder: Embedder | None, run: Run, options: BertScoreOptions
) -> Mapping[str, Metric]:
    """Matches all pairs.

    Args:
        pairs: What will be compared.
        embedder: Gives the vectors; ``None``: there is none.
        run: Has a thread compute.
        options: How values are computed.

    Returns:
        The metrics of ``BERTSCORE``.
    """
    if embedder is None:
        return dict.fromkeys(BERTSCORE, NO_EMBEDDER)
    matcher = Matcher(embedder, run, _match, options.layer)
    try:
        await matcher.add_all(pairs)
    except EmbeddingError as error:
        return dict.fromkeys(BERTSCORE, NotComputed(str(error)))
    found = [matcher.matched[pair] for pair in pairs]
    idf = _Idf(one.reference.tokens for one in found if isinstance(one, _Pair))
    cut = cut_off(matcher.cut_off, matcher.text_count)
    return {
        name: BertScore(
            figure, matcher.matched, idf if with_idf else None, options, matcher.model, matcher.layer, cut
        )
        for name, (figure, with_idf) in BERTSCORE.items()
    }


def _match(candidate: TokenMatrix, reference: TokenMatrix) -> _Pair:
    own, other = largest_cosines(candidate.vectors, reference.vectors)
    return _Pair(_side(candidate, own), _side(reference, other))


def _side(text: TokenMatrix, largest: Vector) -> _Side:
    first, last = text.special
    own = slice(first, len(largest) - last)
    return _Side([intern(token) for token in text.tokens[own]], largest[own])
