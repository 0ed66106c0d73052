from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import nltk  # type: ignore[import-untyped]  # no stubs exist
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.corpus import wordnet  # type: ignore[import-untyped]  # no stubs exist
from nltk.corpus.reader import WordNetCorpusReader  # type: ignore[import-untyped]  # no stubs exist
from nltk.corpus.util import LazyCorpusLoader  # type: ignore[import-untyped]  # no stubs exist
from nltk.translate.meteor_score import single_meteor_score  # type: ignore[import-untyped]  # no stubs exist
from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]  # no stubs exist

from dramaturg.service.errors import ServiceError
from services.alignment.text.bertscore import BERTSCORE, GREEDY
from services.alignment.text.metric import (
    Embedded,
    EmbeddedTokens,
    EmbeddingError,
    NotComputed,
    SentenceSimilarity,
    TextPair,
    similarity,
)
from services.alignment.text.score import (
    EMBEDDING,
    METRICS,
    Meteor,
    TextScores,
    chosen,
    common_subsequence,
    meteor_with_synonyms,
    score_texts,
)

NO_VECTORS = dict.fromkeys((EMBEDDING, *GREEDY, *BERTSCORE), NotComputed("no vectors"))
CAT, MAT = "the cat sat on the mat", "the cat is on the mat"


def no_checkpoint() -> None:
    pass


def scored(candidate: str, reference: str, *names: str) -> TextScores:
    report = score_texts([TextPair(candidate, reference)], names or METRICS, NO_VECTORS, no_checkpoint)
    return report.scores[0]


def test_scores_of_a_worked_example() -> None:
    scores = scored(CAT, MAT).scores
    assert scores["rouge-1"] == pytest.approx(5 / 6)
    assert scores["rouge-2"] == pytest.approx(3 / 5)
    assert scores["rouge-l"] == pytest.approx(5 / 6)
    # Precisions 5/6, 3/5, 1/4 and, smoothed, 1/6 (Papineni et al. 2002 with sacrebleu's "exp").
    assert scores["bleu"] == pytest.approx((5 / 6 * 3 / 5 * 1 / 4 * 1 / 6) ** 0.25)
    assert scores["chrf"] == pytest.approx(0.6458, abs=5e-5)
    # Five of six words match in two chunks: 5/6 of 1 - 0.5 (2/5)^3.
    assert scores["meteor"] == pytest.approx(5 / 6 * (1 - 0.5 * (2 / 5) ** 3))
    assert scores["length"] == len(CAT)


def test_equal_texts_score_one() -> None:
    scores = scored(MAT, MAT).scores
    assert {
        name: scores[name] for name in ("rouge-1", "rouge-2", "rouge-l", "bleu", "chrf")
    } == pytest.approx({"rouge-1": 1, "rouge-2": 1, "rouge-l": 1, "bleu": 1, "chrf": 1})
    assert all(score <= 1 for name, score in scores.items() if name != "length")


def test_stems_count_as_matches() -> None:
    scores = scored("he was running", "he runs").scores
    assert scores["rouge-1"] == pytest.approx(2 * 2 / 5)
    assert scores["meteor"] > scored("he was eating", "he runs").scores["meteor"]


words = st.lists(st.sampled_from(["the", "cat", "sat", "mats", "Mat", "on", "2"]), min_size=1, max_size=30)


@given(words, words)
def test_rouge_l_is_that_of_rouge_score(candidate: list[str], reference: list[str]) -> None:
    expected = RougeScorer(["rougeL"], use_stemmer=True).score(" ".join(reference), " ".join(candidate))
    names = ("rouge-l", "rouge-l-precision", "rouge-l-recall")
    scores = scored(" ".join(candidate), " ".join(reference), *names).scores
    found = expected["rougeL"]
    assert [scores[name] for name in names] == pytest.approx([found.fmeasure, found.precision, found.recall])


@given(st.lists(words, min_size=1, max_size=4), st.lists(words, min_size=1, max_size=4))
def test_rouge_lsum_is_that_of_rouge_score(candidate: list[list[str]], reference: list[list[str]]) -> None:
    ours, theirs = ("\n".join(" ".join(line) for line in text) for text in (candidate, reference))
    expected = RougeScorer(["rougeLsum"], use_stemmer=True).score(theirs, ours)["rougeLsum"]
    names = ("rouge-lsum", "rouge-lsum-precision", "rouge-lsum-recall")
    scores = scored(ours, theirs, *names).scores
    assert [scores[name] for name in names] == pytest.approx(
        [expected.fmeasure, expected.precision, expected.recall]
    )


def test_rouge_lsum_splits_a_text_of_one_line_into_sentences() -> None:
    reference = "the cat sat. the dog ran."
    swapped = "the dog ran. the cat sat."
    scores = scored(swapped, reference, "rouge-l", "rouge-lsum").scores
    assert scores["rouge-lsum"] == 1.0
    assert scores["rouge-l"] == pytest.approx(0.5)


def test_texts_too_long_for_rouge_lsum_are_undefined() -> None:
    text = " ".join(["word"] * 1500)
    found = scored(text, text, "rouge-lsum", "rouge-l")
    assert found.undefined == {"rouge-lsum": "the texts have 1500 and 1500 words, too many for ROUGE-Lsum"}
    assert found.scores == {"rouge-l": 1.0}


def test_precision_and_recall_of_rouge_have_their_own_names() -> None:
    scores = scored("the cat", MAT, "rouge-1", "rouge-1-precision", "rouge-1-recall", "rouge-2-recall").scores
    assert scores == pytest.approx(
        {"rouge-1": 0.5, "rouge-1-precision": 1.0, "rouge-1-recall": 1 / 3, "rouge-2-recall": 1 / 5}
    )


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_the_common_subsequence_is_the_longest(first: list[str], second: list[str]) -> None:
    rows = [[0] * (len(second) + 1)]
    for a in first:
        row = [0]
        for index, b in enumerate(second):
            row.append(rows[-1][index] + 1 if a == b else max(rows[-1][index + 1], row[-1]))
        rows.append(row)
    assert common_subsequence(first, second) == rows[-1][-1]


def test_long_texts_are_scored_whole() -> None:
    candidate = " ".join(str(index % 977) for index in range(30_000))
    scores = scored(candidate, candidate[::-1], "rouge-1", "rouge-2", "rouge-l", "meteor").scores
    assert set(scores) == {"rouge-1", "rouge-2", "rouge-l", "meteor"}


@pytest.mark.parametrize(
    ("candidate", "reference", "side"), [("", MAT, "candidate"), (MAT, " \n", "reference")]
)
def test_an_empty_text_leaves_the_metrics_undefined(candidate: str, reference: str, side: str) -> None:
    found = scored(candidate, reference)
    assert set(found.undefined) == set(METRICS) - {"length"}
    assert found.undefined["bleu"] == f"the {side} is empty"
    assert found.undefined["rouge-1"] == f"the {side} has 0 words that ROUGE reads; at least 1 are needed"
    assert found.scores == {"length": len(candidate)}


def test_a_script_that_rouge_cannot_read_is_not_scored_as_no_overlap() -> None:
    found = scored("把面粉和糖混合", "把面粉和糖混合", "rouge-1", "rouge-l", "chrf")
    assert set(found.undefined) == {"rouge-1", "rouge-l"}
    assert found.scores["chrf"] == pytest.approx(1)


def test_one_word_has_no_bigram() -> None:
    found = scored("mat", MAT, "rouge-2", "rouge-1")
    assert found.undefined == {"rouge-2": "the candidate has 1 words that ROUGE reads; at least 2 are needed"}


class StemsOnly:
    def synsets(self, word: str) -> list[object]:
        return []


@given(words, words)
def test_meteor_is_that_of_nltk_without_synonyms(candidate: list[str], reference: list[str]) -> None:
    expected = single_meteor_score(reference, candidate, wordnet=StemsOnly())
    assert scored(" ".join(candidate), " ".join(reference), "meteor").scores["meteor"] == pytest.approx(
        expected
    )


class Synonyms(StemsOnly):
    """Knows that "big" and "larg", the stem of "large", mean the same."""

    def synsets(self, word: str) -> list[object]:
        words = ["big", "larg"] if word in {"big", "larg"} else []
        lemmas = [SimpleNamespace(name=lambda name=name: name) for name in words]
        return [SimpleNamespace(lemmas=lambda: lemmas)]


def test_meteor_with_synonyms_finds_more() -> None:
    texts = "a big house by the sea", "a large house by the sea"
    with_synonyms, without = Meteor(Synonyms()), Meteor()
    found, less = with_synonyms.score(*texts), without.score(*texts)
    assert isinstance(found, float)
    assert isinstance(less, float)
    assert found > less
    assert "WordNet synonym modules" in with_synonyms.method


class SharedFile:
    """As nltk's reader of WordNet: a look-up sets a position of a shared file, and reads there."""

    position = ""
    disturbed = False

    def ensure_loaded(self) -> None:
        pass

    def synsets(self, word: str) -> tuple[()]:
        self.position = word
        for _ in range(2000):
            self.disturbed |= self.position != word
        return ()


def test_threads_read_wordnet_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedFile()
    monkeypatch.setattr(nltk.corpus, "wordnet", shared)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    start, metric = Barrier(4), meteor_with_synonyms()

    def score(text: str) -> object:
        start.wait()
        return metric.score(text, "another")

    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(score, [" ".join(f"w{one}x{place}" for place in range(50)) for one in range(4)]))
    finally:
        sys.setswitchinterval(interval)
    assert shared.position
    assert not shared.disturbed


def test_meteor_with_wordnet_is_undefined_with_incomplete_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpora" / "wordnet").mkdir(parents=True)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    monkeypatch.setattr(nltk.corpus, "wordnet", LazyCorpusLoader("wordnet", WordNetCorpusReader, None))
    report = score_texts([TextPair(CAT, MAT)], ["meteor-wordnet", "rouge-1"], NO_VECTORS, no_checkpoint)
    assert "WordNet is not installed" in report.scores[0].undefined["meteor-wordnet"]
    assert report.scores[0].scores["rouge-1"]


def test_meteor_with_wordnet_is_undefined_without_the_data() -> None:
    try:
        wordnet.ensure_loaded()
    except LookupError:
        pass
    else:
        pytest.skip("WordNet is installed")
    report = score_texts([TextPair(CAT, MAT)], ["meteor-wordnet"], NO_VECTORS, no_checkpoint)
    assert "WordNet is not installed" in report.scores[0].undefined["meteor-wordnet"]
    assert "not computed" in report.methods["meteor-wordnet"]


def test_methods_say_what_was_done() -> None:
    report = score_texts([TextPair(CAT, MAT)], METRICS, NO_VECTORS, no_checkpoint)
    assert set(report.methods) == set(METRICS)
    assert report.methods["rouge-lsum-recall"].startswith("ROUGE-Lsum over sentences")
    assert "recall" in report.methods["rouge-lsum-recall"]
    assert "WordNet" in report.methods["meteor"]
    assert "tok:13a" in report.methods["bleu"]
    assert report.methods["embedding"] == "not computed: no vectors"


def test_unknown_metrics_are_all_named() -> None:
    with pytest.raises(ServiceError) as refused:
        chosen(["bleu", "rouge", "Bleu"])
    assert [violation.field for violation in refused.value.violations] == ["metrics[1]", "metrics[2]"]
    assert chosen(["chrf", "bleu", "chrf"]) == ["chrf", "bleu"]
    assert chosen([]) == list(METRICS)


class LetterEmbedder:
    """A vector with one axis a letter; counts what it was asked for."""

    def __init__(self, fails: str = "") -> None:
        self.batches: list[Sequence[str]] = []
        self._fails = fails

    async def embed(self, texts: Sequence[str]) -> Embedded:
        self.batches.append(texts)
        if self._fails:
            raise EmbeddingError(self._fails)
        vectors = [np.array([text.count(letter) for letter in "abc"], np.float32) for text in texts]
        vectors = [vector / max(1.0, float(np.linalg.norm(vector))) for vector in vectors]
        return Embedded(vectors, sum(len(text) > 5 for text in texts), "letters")

    async def embed_tokens(self, texts: Sequence[str], layer: int | None = None) -> EmbeddedTokens:
        raise NotImplementedError


async def test_similarity_embeds_each_text_once() -> None:
    embedder = LetterEmbedder()
    found = await similarity(["a", "ab", "a", " ", "aaaaaaab"], embedder)
    assert embedder.batches == [["a", "ab", "aaaaaaab"]]
    assert isinstance(found, SentenceSimilarity)
    assert found.score("a", "ab") == pytest.approx(0.5**0.5)
    assert found.score("a", "a") == pytest.approx(1)
    assert "1 of 3 texts were longer" in found.method


async def test_similarity_keeps_requests_small() -> None:
    embedder = LetterEmbedder()
    await similarity([*(f"{index}" for index in range(1500)), "a" * 1_999_000, "b" * 1_999_000], embedder)
    assert [len(batch) for batch in embedder.batches] == [1024, 476, 1, 1]


@pytest.mark.parametrize("embedder", [None, LetterEmbedder("EmbeddingService failed with UNAVAILABLE: gone")])
async def test_without_vectors_the_similarity_is_undefined_and_says_why(
    embedder: LetterEmbedder | None,
) -> None:
    found = await similarity(["a"], embedder)
    report = score_texts([TextPair("a", "a")], ["embedding", "length"], {"embedding": found}, no_checkpoint)
    assert report.scores[0].scores == {"length": 1}
    assert report.scores[0].undefined["embedding"] == (
        "no EmbeddingService is configured (setting embedding_target)"
        if embedder is None
        else "EmbeddingService failed with UNAVAILABLE: gone"
    )


async def test_opposite_vectors_score_zero() -> None:
    opposite = SentenceSimilarity(
        {"a": np.array([1.0], np.float32), "b": np.array([-1.0], np.float32)}, "signs", 0
    )
    assert opposite.score("a", "b") == 0.0
