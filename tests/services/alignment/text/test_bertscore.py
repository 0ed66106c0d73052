"""BERTScore against its definition, and against the package bert-score."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dramaturg.service.channel import open_channel
from dramaturg.service.threads import Checkpoint
from dramaturg.testing import serve
from services.alignment.servicer import RemoteEmbedder
from services.alignment.text.bertscore import BERTSCORE, BertScoreOptions, bertscore
from services.alignment.text.metric import Embedded, EmbeddedTokens, TextPair, Undefined
from tests.support.embedding import WarmApp


async def at_once(work: Callable[[Checkpoint], list[Any]]) -> list[Any]:
    return work(lambda: None)


class WordEmbedder:
    """A random vector a word and layer, with a token at each end of a text."""

    def __init__(self) -> None:
        self.layers: set[int | None] = set()
        self._vectors: dict[tuple[str, int], np.ndarray[Any, np.dtype[np.float32]]] = {}
        self._generator = np.random.default_rng(5)

    def vector(self, word: str, layer: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        if (word, layer) not in self._vectors:
            values = self._generator.normal(size=6).astype(np.float32)
            self._vectors[word, layer] = values / np.linalg.norm(values)
        return self._vectors[word, layer]

    async def embed(self, texts: Sequence[str]) -> Embedded:
        raise NotImplementedError

    async def embed_tokens(self, texts: Sequence[str], layer: int | None = None) -> EmbeddedTokens:
        self.layers.add(layer)
        assert layer is not None
        tokens = [["[CLS]", *text.split(), "[SEP]"] for text in texts]
        return EmbeddedTokens(
            [np.stack([self.vector(word, layer) for word in words]) for words in tokens],
            [False] * len(texts),
            "words",
            layer or 4,
            tokens,
            [(1, 1)] * len(texts),
        )


PAIRS = [
    TextPair("whisk the eggs", "beat the eggs well"),
    TextPair("boil water", "heat the water"),
    TextPair("boil water", "pour the tea"),
]


def expected(embedder: WordEmbedder, layer: int, *, idf: bool) -> list[tuple[float, float, float]]:
    """The definition, token by token."""
    references = [pair.reference.split() for pair in PAIRS]

    def weight(word: str) -> float:
        holding = sum(word in words for words in references)
        return math.log((len(references) + 1) / (holding + 1)) if idf else 1.0

    def mean(text: str, other: str) -> float:
        ends = ["[CLS]", *other.split(), "[SEP]"]
        total = largest = 0.0
        for word in text.split():
            cosines = [float(embedder.vector(word, layer) @ embedder.vector(one, layer)) for one in ends]
            largest += weight(word) * max(cosines)
            total += weight(word)
        return largest / total

    found = []
    for candidate, reference in PAIRS:
        precision, recall = mean(candidate, reference), mean(reference, candidate)
        found.append((precision, recall, 2 * precision * recall / (precision + recall)))
    return found


@pytest.mark.parametrize("layer", [0, 3])
@pytest.mark.parametrize("idf", [False, True])
async def test_values_are_those_of_the_definition(layer: int, idf: bool) -> None:
    embedder = WordEmbedder()
    metrics = await bertscore(PAIRS, embedder, at_once, BertScoreOptions(layer))
    assert set(metrics) == set(BERTSCORE)
    assert embedder.layers == {layer}
    name = "bertscore-idf" if idf else "bertscore"
    for pair, wanted in zip(PAIRS, expected(embedder, layer, idf=idf), strict=True):
        found = [metrics[f"{name}{figure}"].score(*pair) for figure in ("-precision", "-recall", "")]
        assert found == pytest.approx(wanted, abs=1e-6)


async def test_values_are_rescaled_one_by_one_and_the_method_says_how() -> None:
    embedder = WordEmbedder()
    plain = await bertscore(PAIRS, embedder, at_once, BertScoreOptions())
    rescaled = await bertscore(PAIRS, embedder, at_once, BertScoreOptions(baseline=(0.2, 0.3, 0.25)))
    for figure, base in (("-precision", 0.2), ("-recall", 0.3), ("", 0.25)):
        before, after = (one[f"bertscore{figure}"].score(*PAIRS[0]) for one in (plain, rescaled))
        assert isinstance(before, float)
        assert after == pytest.approx((before - base) / (1 - base))
    assert plain["bertscore"].method == (
        "F1 of BERTScore with layer 4 of words, no idf weights, not rescaled"
    )
    assert "rescaled with the baseline (0.2, 0.3, 0.25)" in rescaled["bertscore-recall"].method
    assert "idf weights of the request's references" in plain["bertscore-idf"].method


async def test_a_text_without_weights_or_words_is_undefined() -> None:
    pairs = [TextPair("the eggs", "the eggs"), TextPair("", "the eggs")]
    metrics = await bertscore(pairs, WordEmbedder(), at_once, BertScoreOptions())
    assert metrics["bertscore"].score(*pairs[0]) == pytest.approx(1)
    undefined = metrics["bertscore-idf"].score(*pairs[0])
    assert isinstance(undefined, Undefined)
    assert "no idf weights" in undefined.reason
    assert metrics["bertscore"].score(*pairs[1]) == Undefined("the candidate is empty")


TEXTS = [
    TextPair("Preheat the oven and grease the pan.", "Grease a baking pan, then heat the oven."),
    TextPair("Boil water.", "Bring a pot of water to the boil."),
    TextPair("Stir the batter slowly until smooth.", "Whisk the batter."),
]
# bert-score 0.3.13 on torch 2.15 with the same weights: precision, recall and F1 of each pair.
PUBLISHED = {
    (6, False): [(0.84644, 0.87972, 0.86276), (0.88593, 0.71683, 0.79246), (0.46816, 0.47755, 0.47281)],
    (6, True): [(0.78597, 0.86908, 0.82544), (0.89991, 0.70622, 0.79139), (0.39068, 0.44359, 0.41546)],
    (4, False): [(0.80677, 0.83724, 0.82172), (0.87999, 0.67319, 0.76282), (0.54969, 0.56089, 0.55524)],
    (4, True): [(0.72219, 0.82332, 0.76945), (0.88477, 0.6519, 0.75069), (0.43087, 0.47685, 0.4527)],
}


@pytest.mark.parametrize(("layer", "idf"), PUBLISHED)
async def test_values_are_those_of_the_package(layer: int, idf: bool) -> None:
    name = "bertscore-idf" if idf else "bertscore"
    async with (
        WarmApp().open() as contracts,
        serve(*contracts) as server,
        open_channel(server.target) as channel,
    ):
        embedder = RemoteEmbedder(channel, "")
        metrics = await bertscore(TEXTS, embedder, at_once, BertScoreOptions(layer))
    for pair, wanted in zip(TEXTS, PUBLISHED[layer, idf], strict=True):
        found = [metrics[f"{name}{figure}"].score(*pair) for figure in ("-precision", "-recall", "")]
        assert found == pytest.approx(wanted, abs=2e-5)
    assert f"layer {layer} of all-MiniLM-L6-v2" in metrics[name].method
