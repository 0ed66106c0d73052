"""ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004), as F1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version

from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]  # no stubs exist
from rouge_score.tokenizers import DefaultTokenizer  # type: ignore[import-untyped]  # no stubs exist

from services.alignment.text.metric import Undefined

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
        """The words of a text."""
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
        """See ``Metric``."""
        return f"ROUGE-{self._length}: {_LIBRARY}"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """See ``Metric``."""
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
        """See ``Metric``."""
        return f"ROUGE-L over the whole text: tokens of {_LIBRARY}"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """See ``Metric``."""
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
