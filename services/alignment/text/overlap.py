"""BLEU, chrF and METEOR of a text against a reference, by the libraries that others use; and the length."""

from __future__ import annotations

import re
from importlib.metadata import version

from nltk.translate.meteor_score import single_meteor_score  # type: ignore[import-untyped]  # no stubs exist
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
        """See ``Metric``."""
        return f"{self._name}: sacrebleu, {self._scorer.get_signature()}, divided by 100"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """See ``Metric``."""
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
        """See ``Metric``."""
        return (
            f"METEOR: nltk {version('nltk')}, words \\w+ of the lower-cased text, exact and stem modules "
            "only (no WordNet synonyms, no paraphrases), alpha 0.9, beta 3, gamma 0.5; not comparable with "
            "METEOR 1.5"
        )

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """See ``Metric``."""
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
    """How long the candidate is; what "the longer one is better" goes by."""

    @property
    def method(self) -> str:
        """See ``Metric``."""
        return "Unicode code points of the candidate"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """The length of the candidate in code points; always defined."""
        del reference
        return float(len(candidate))
