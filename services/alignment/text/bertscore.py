"""BERTScore (Zhang et al. 2020), as the package bert-score computes it.

Each token of one text is matched with the nearest of the other by the cosine of their hidden states in one
layer, the tokens at the ends ([CLS] and [SEP]) included. The weighted mean of the candidate's largest cosines
is the precision, that of the reference's the recall. The tokens at the ends have no weight; others have 1, or
their inverse document frequency in the references of the request. Values may be rescaled against a baseline,
the values of random pairs of texts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from sys import intern
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from services.alignment.text.greedy import Matcher, Run, TokenMatrix, largest_cosines
from services.alignment.text.metric import Metric, NotComputed, TextPair, Undefined
from services.alignment.text.similarity import NO_EMBEDDER, Embedder, EmbeddingError, Vector, cut_off

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
