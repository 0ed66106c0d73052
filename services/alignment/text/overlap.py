"""BLEU, chrF and METEOR of a text against a reference, by the libraries that others use; and the length."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version

from nltk.translate.meteor_score import single_meteor_score  # type: ignore[import-untyped]  # no stubs exist
from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]  # no stubs exist
from rouge_score.tokenizers import DefaultTokenizer  # type: ignore[import-untyped]  # no stubs exist
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from services.alignment.text.metric import Undefined, blank

_WORD = re.compile(r"\w+")


class SacreBleu:
    """A metric of sacrebleu for single texts: BLEU (Papineni et al. 2002) or chrF (Popović 2015).

    Args:
        scorer: Sentence BLEU with effective order, or chrF.
        name: What the method calls it.
    """

    def __init__(self, scorer: BLEU | CHRF, name: str) -> None:
        self._scorer = scorer
        scorer.sentence_score("one text", ["one text"])  # its signature is complete only after a score
        self._name = name

    @property
    def method(self) -> str:
        return f"{self._name}: sacrebleu, {self._scorer.get_signature()}, divided by 100"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        if empty := blank(candidate, reference):
            return empty
        return min(1.0, self._scorer.sentence_score(candidate, [reference]).score / 100)


def bleu() -> SacreBleu:
    """Sentence BLEU. A text with fewer than four words is compared by the n-grams that it has."""
    return SacreBleu(BLEU(effective_order=True), "sentence BLEU")


def chrf() -> SacreBleu:
    """ChrF: n-grams of characters, so that it does not need spaces between words."""
    return SacreBleu(CHRF(), "chrF")


class Meteor:
    """METEOR with its exact and stem modules, as nltk aligns (Lavie and Agarwal 2007).

    The synonym module needs WordNet, which is data to be downloaded; nltk's looks up stems rather than words,
    so that it hardly finds any.
    """

    @property
    def method(self) -> str:
        return (
            f"METEOR: nltk {version('nltk')}, words \\w+ of the lower-cased text, exact and stem modules "
            "only (no WordNet synonyms, no paraphrases), alpha 0.9, beta 3, gamma 0.5; not comparable with "
            "METEOR 1.5"
        )

    def score(self, candidate: str, reference: str) -> float | Undefined:
        ours, theirs = (_WORD.findall(text.lower()) for text in (candidate, reference))
        for name, words in (("candidate", ours), ("reference", theirs)):
            if not words:
                return Undefined(f"the {name} has no words")
        return float(single_meteor_score(theirs, ours, wordnet=_NoSynonyms()))


class _NoSynonyms:
    """A WordNet without entries."""

    def synsets(self, word: str) -> tuple[()]:
        """No sets of synonyms have the word."""
        del word
        return ()


class Length:
    """The length of the candidate, the baseline "the longer text wins"."""

    @property
    def method(self) -> str:
        return "Unicode code points of the candidate"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """The length of the candidate in code points; always defined."""
        del reference
        return float(len(candidate))


_LIBRARY = (
    f"rouge-score {version('rouge-score')}, tokens [a-z0-9]+ of the lower-cased text, Porter stemmer, F1"
)


class RougeTokens:
    """Splits texts into stemmed words as rouge-score does, each text once.

    The words are of the letters a to z and digits: a text in another script has none.
    """

    def __init__(self) -> None:
        self._split = lru_cache(maxsize=256)(DefaultTokenizer(use_stemmer=True).tokenize)

    def tokenize(self, text: str) -> Sequence[str]:
        words: Sequence[str] = self._split(text)
        return words

    def too_few(self, candidate: str, reference: str, least: int) -> Undefined | None:
        """What to say where one of the texts has fewer words than the metric needs."""
        for name, text in (("candidate", candidate), ("reference", reference)):
            if (count := len(self.tokenize(text))) < least:
                return Undefined(
                    f"the {name} has {count} words that ROUGE reads; at least {least} are needed"
                )
        return None


class RougeN:
    """The overlap of n-grams.

    Args:
        length: The n, from 1 to 9.
        tokens: Splits the texts.
    """

    def __init__(self, length: int, tokens: RougeTokens) -> None:
        self._length = length
        self._tokens = tokens
        self._name = f"rouge{length}"
        self._scorer = RougeScorer([self._name], tokenizer=tokens)

    @property
    def method(self) -> str:
        return f"ROUGE-{self._length}: {_LIBRARY}"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        if few := self._tokens.too_few(candidate, reference, self._length):
            return few
        return float(self._scorer.score(reference, candidate)[self._name].fmeasure)


class RougeL:
    """The longest common subsequence of words, of the texts as one sentence each.

    The library's own table takes memory for every two words; this needs a bit, and gives the same score.

    Args:
        tokens: Splits the texts.
    """

    def __init__(self, tokens: RougeTokens) -> None:
        self._tokens = tokens

    @property
    def method(self) -> str:
        return f"ROUGE-L over the whole text: tokens of {_LIBRARY}"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        if few := self._tokens.too_few(candidate, reference, 1):
            return few
        ours, theirs = self._tokens.tokenize(candidate), self._tokens.tokenize(reference)
        return 2 * common_subsequence(ours, theirs) / (len(ours) + len(theirs))


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence, bit-parallel (Hyyrö 2004).

    A bit of ``row`` is 0 where the row of the dynamic programme rises.
    """
    places: dict[str, int] = {}
    for place, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << place
    full = (1 << len(first)) - 1
    row = full
    for word in second:
        matched = row & places.get(word, 0)
        row = (row + matched | row - matched) & full
    return len(first) - row.bit_count()
