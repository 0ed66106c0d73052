from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dramaturg.service.threads import Checkpoint
from services.alignment.text import bertscore
from services.alignment.text.bertscore import GREEDY, GreedyMatching, greedy_matching, match
from services.alignment.text.metric import (
    Embedded,
    EmbeddedTokens,
    EmbeddingError,
    Matrix,
    NotComputed,
    TextPair,
    TooManyTokensError,
    Undefined,
)


def no_checkpoint() -> None:
    pass


async def at_once(work: Callable[[Checkpoint], list[Any]]) -> list[Any]:
    return work(no_checkpoint)


def unit(rows: NDArray[np.float64]) -> Matrix:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


@st.composite
def texts(draw: st.DrawFn) -> tuple[Matrix, Matrix]:
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dimension = draw(st.integers(1, 8))
    first, second = (unit(generator.normal(size=(draw(st.integers(1, 12)), dimension))) for _ in range(2))
    return first, second


@given(texts())
def test_it_is_the_mean_of_the_best_cosines(pair: tuple[Matrix, Matrix]) -> None:
    candidate, reference = pair
    best = [max(float(row @ other) for other in reference) for row in candidate]
    best_back = [max(float(row @ other) for other in candidate) for row in reference]
    precision, recall = (min(1.0, max(0.0, sum(values) / len(values))) for values in (best, best_back))
    found = match(candidate, reference)
    assert found == pytest.approx((precision, recall), abs=1e-5)
    expected = 2 * precision * recall / (precision + recall) if precision + recall else 0
    assert found.f1 == pytest.approx(expected, abs=1e-5)
    assert 0 <= min(found) <= found.f1 <= max(found) <= 1


@given(texts())
def test_the_other_way_round_precision_and_recall_change_places(pair: tuple[Matrix, Matrix]) -> None:
    there, back = match(*pair), match(*pair[::-1])
    assert (there.precision, there.recall) == pytest.approx((back.recall, back.precision), abs=1e-6)
    assert there.f1 == pytest.approx(back.f1, abs=1e-6)


@given(texts())
def test_equal_texts_score_one(pair: tuple[Matrix, Matrix]) -> None:
    found = match(pair[0], pair[0])
    assert (*found, found.f1) == pytest.approx((1, 1, 1), abs=1e-6)


def test_long_texts_are_matched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(7)
    candidate, reference = (unit(generator.normal(size=(count, 16))) for count in (50, 30))
    whole = match(candidate, reference)
    monkeypatch.setattr(bertscore, "_ROWS_AT_ONCE", 7)
    assert match(candidate, reference) == pytest.approx(whole)


class WordEmbedder:
    """A vector a word, by its first letter; counts what it was asked for and takes so many words at once."""

    def __init__(self, most: int = 10**9) -> None:
        self.batches: list[Sequence[str]] = []
        self._most = most

    async def embed(self, texts: Sequence[str]) -> Embedded:
        raise NotImplementedError

    async def embed_tokens(self, texts: Sequence[str], layer: int | None = None) -> EmbeddedTokens:
        if sum(len(text.split()) for text in texts) > self._most:
            raise TooManyTokensError("too many tokens")
        self.batches.append(texts)
        axes = np.eye(26, dtype=np.float32)
        # A word of marks is one that the model does not read.
        words = [[word for word in text.split() if word != "-"] for text in texts]
        matrices = [axes[[ord(word[0]) - ord("a") for word in one]].reshape(len(one), 26) for one in words]
        return EmbeddedTokens(matrices, [len(one) > 3 for one in words], "words")


async def test_each_figure_is_a_metric_of_its_own() -> None:
    pair = TextPair("apple pie", "bake a plum pie")
    metrics = await greedy_matching([pair], WordEmbedder(), at_once)
    assert set(metrics) == set(GREEDY)
    assert metrics["embedding-greedy-precision"].score(*pair) == 1
    assert metrics["embedding-greedy-recall"].score(*pair) == pytest.approx(3 / 4)
    assert metrics["embedding-greedy"].score(*pair) == pytest.approx(6 / 7)
    assert "1 of 2 texts were longer" in metrics["embedding-greedy"].method


async def test_a_text_without_tokens_is_undefined_with_its_reason() -> None:
    pairs = [TextPair("", "pie"), TextPair("pie", " "), TextPair("pie", "-"), TextPair("pie", "plum")]
    embedder = WordEmbedder()
    metric = (await greedy_matching(pairs, embedder, at_once))["embedding-greedy"]
    assert [metric.score(*pair) for pair in pairs] == [
        Undefined("the candidate is empty"),
        Undefined("the reference is empty"),
        Undefined("the reference has no tokens that the model reads"),
        1.0,
    ]
    assert embedder.batches == [["pie", "-", "plum"]]


async def test_requests_hold_few_texts_and_each_text_once() -> None:
    pairs = [TextPair(f"a{number}", "source") for number in range(40)]
    embedder = WordEmbedder()
    metric = (await greedy_matching([*pairs, *pairs], embedder, at_once))["embedding-greedy"]
    assert [len(batch) for batch in embedder.batches] == [32, 10]
    assert all(metric.score(*pair) == 0.0 for pair in pairs)
    embedder = WordEmbedder()
    long = [TextPair("a" * 900_000, "b" * 900_000), TextPair("a" * 900_000, "c" * 900_000)]
    await greedy_matching(long, embedder, at_once)
    assert [len(batch) for batch in embedder.batches] == [2, 2]


async def test_answers_that_would_be_too_large_are_asked_for_in_parts() -> None:
    pairs = [TextPair(f"{letter} b", f"{letter} c") for letter in "defgh"]
    pairs.insert(2, TextPair("a " * 9, "b"))
    embedder = WordEmbedder(most=8)
    metric = (await greedy_matching(pairs, embedder, at_once))["embedding-greedy"]
    assert [metric.score(*pair) for pair in pairs] == [0.5, 0.5, Undefined("too many tokens"), 0.5, 0.5, 0.5]


class NoTokens(WordEmbedder):
    async def embed_tokens(self, texts: Sequence[str], layer: int | None = None) -> EmbeddedTokens:
        raise EmbeddingError("one vector a text")


@pytest.mark.parametrize("embedder", [None, NoTokens()])
async def test_without_vectors_every_figure_says_why(embedder: WordEmbedder | None) -> None:
    metrics = await greedy_matching([TextPair("a", "a")], embedder, at_once)
    reason = (
        "no EmbeddingService is configured (setting embedding_target)"
        if embedder is None
        else "one vector a text"
    )
    for metric in metrics.values():
        assert isinstance(metric, NotComputed)
        assert metric.score("a", "a") == Undefined(reason)


async def test_without_a_text_there_is_nothing_to_ask() -> None:
    embedder = WordEmbedder()
    metrics = await greedy_matching([TextPair("", " ")], embedder, at_once)
    assert isinstance(metrics["embedding-greedy"], GreedyMatching)
    assert embedder.batches == []
