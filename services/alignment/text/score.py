"""Scores of pairs of texts by the requested metrics; overlap by standard libraries."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol

from dramaturg.service.errors import Violation, invalid_fields
from dramaturg.service.threads import Checkpoint
from services.alignment.text.bertscore import (
    BERTSCORE,
    GREEDY,
    BertScoreOptions,
    Run,
    bertscore,
    greedy_matching,
)
from services.alignment.text.metric import (
    Embedder,
    Metric,
    NotComputed,
    TextPair,
    Undefined,
    blank,
    similarity,
)

if TYPE_CHECKING:
    from rouge_score.scoring import Score  # type: ignore[import-untyped]  # no stubs exist
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF


# The libraries are imported on their first use: nltk alone takes longer than the rest of the service.

_WORD = re.compile(r"\w+")
# nltk's corpora are not safe in several threads: neither is loading, nor reading of shared files.
_READING = threading.Lock()


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
    from sacrebleu.metrics.bleu import BLEU

    return SacreBleu(BLEU(effective_order=True), "sentence BLEU")


def chrf() -> SacreBleu:
    """ChrF: n-grams of characters, so that it does not need spaces between words."""
    from sacrebleu.metrics.chrf import CHRF

    return SacreBleu(CHRF(), "chrF")


class WordNet(Protocol):
    """What METEOR's synonym module needs of WordNet."""

    def synsets(self, word: str) -> Sequence[Any]:
        """The sets of synonyms that a word is in."""


class Meteor:
    """METEOR as nltk aligns (Lavie and Agarwal 2007): exact and stem modules, and synonyms with WordNet.

    The synonym module of nltk looks up stems rather than words, so that it finds few.

    Args:
        wordnet: The synonyms; ``None``: the module is left out.
    """

    def __init__(self, wordnet: WordNet | None = None) -> None:
        from nltk.translate.meteor_score import single_meteor_score  # type: ignore[import-untyped]  # no stubs exist

        self._wordnet = wordnet
        self._align = single_meteor_score

    @property
    def method(self) -> str:
        modules = "exact and stem modules only (no WordNet synonyms, no paraphrases)"
        if self._wordnet is not None:
            modules = "exact, stem and WordNet synonym modules (no paraphrases)"
        return (
            f"METEOR: nltk {version('nltk')}, words \\w+ of the lower-cased text, {modules}, alpha 0.9, "
            "beta 3, gamma 0.5; not comparable with METEOR 1.5"
        )

    def score(self, candidate: str, reference: str) -> float | Undefined:
        ours, theirs = (_WORD.findall(text.lower()) for text in (candidate, reference))
        for name, words in (("candidate", ours), ("reference", theirs)):
            if not words:
                return Undefined(f"the {name} has no words")
        return float(self._align(theirs, ours, wordnet=self._wordnet or _NoSynonyms()))


def meteor_with_synonyms() -> Metric:
    """METEOR with the WordNet that is installed as nltk data; undefined for all texts without it."""
    from nltk.corpus import wordnet  # type: ignore[import-untyped]  # no stubs exist

    with _READING:
        try:
            wordnet.ensure_loaded()
        except (LookupError, OSError):  # absent, or incomplete
            return NotComputed("WordNet is not installed (python -m nltk.downloader wordnet)")
    return Meteor(_Locked(wordnet))


class _Locked:
    """A WordNet for several threads: nltk's reads shared files at a position that each look-up sets."""

    def __init__(self, wordnet: WordNet) -> None:
        self._wordnet = wordnet

    def synsets(self, word: str) -> Sequence[Any]:
        """The sets of synonyms that a word is in."""
        with _READING:
            return self._wordnet.synsets(word)


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


_ROUGE = f"rouge-score {version('rouge-score')}, tokens [a-z0-9]+ of the lower-cased text, Porter stemmer"
_ROUGE_VARIANTS = {
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L over the whole text",
    "rougeLsum": "ROUGE-Lsum over sentences (lines; a text of one line is split after . ! and ?)",
}
_FIGURES = {"fmeasure": "F1", "precision": "precision", "recall": "recall"}
_MAX_SUMMARY_CELLS = 2_000_000
"""The maximum product of the word counts for ROUGE-Lsum, whose time and memory are proportional to it."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


class RougeTexts:
    """Tokens and ROUGE scores of texts, each computed once for all metrics.

    Tokens have the letters a to z and digits: a text in another script has none.
    """

    def __init__(self) -> None:
        from rouge_score.tokenizers import DefaultTokenizer  # type: ignore[import-untyped]  # no stubs exist

        self.tokenize: Callable[[str], Sequence[str]] = lru_cache(maxsize=256)(
            DefaultTokenizer(use_stemmer=True).tokenize
        )
        self.score: Callable[[str, str, str], Score | Undefined] = lru_cache(maxsize=256)(self._score)

    def _score(self, variant: str, candidate: str, reference: str) -> Score | Undefined:
        from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]  # no stubs exist
        from rouge_score.scoring import Score

        least = 2 if variant == "rouge2" else 1
        for name, text in (("candidate", candidate), ("reference", reference)):
            if (count := len(self.tokenize(text))) < least:
                return Undefined(
                    f"the {name} has {count} words that ROUGE reads; at least {least} are needed"
                )
        ours, theirs = self.tokenize(candidate), self.tokenize(reference)
        if variant == "rougeL":
            # The library's table needs memory for every pair of words; this gives the same score.
            shared = common_subsequence(ours, theirs)
            return Score(shared / len(ours), shared / len(theirs), 2 * shared / (len(ours) + len(theirs)))
        if variant == "rougeLsum":
            if len(ours) * len(theirs) > _MAX_SUMMARY_CELLS:
                return Undefined(
                    f"the texts have {len(ours)} and {len(theirs)} words, too many for ROUGE-Lsum"
                )
            candidate, reference = _sentences(candidate), _sentences(reference)
        found: Score = RougeScorer([variant], tokenizer=self).score(reference, candidate)[variant]
        return found


class Rouge:
    """One figure of one variant of ROUGE (Lin 2004).

    Args:
        variant: The name of the variant in rouge-score, e.g. "rougeL".
        figure: The figure, as rouge-score names it: "fmeasure", "precision" or "recall".
        texts: The tokens and scores of the texts.
    """

    def __init__(self, variant: str, figure: str, texts: RougeTexts) -> None:
        self._variant = variant
        self._figure = figure
        self._texts = texts

    @property
    def method(self) -> str:
        return f"{_ROUGE_VARIANTS[self._variant]}, {_FIGURES[self._figure]}: {_ROUGE}"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        found = self._texts.score(self._variant, candidate, reference)
        return found if isinstance(found, Undefined) else float(getattr(found, self._figure))


def _sentences(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines if len(lines) > 1 else _SENTENCE_END.split(text.strip()))


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


EMBEDDING = "embedding"
"""The similarity of whole texts; it, ``GREEDY`` and ``BERTSCORE`` need another service."""

_OFFLINE: Mapping[str, Callable[[RougeTexts], Metric]] = {
    f"{name}{suffix}": partial(Rouge, variant, figure)
    for name, variant in (
        ("rouge-1", "rouge1"),
        ("rouge-2", "rouge2"),
        ("rouge-l", "rougeL"),
        ("rouge-lsum", "rougeLsum"),
    )
    for suffix, figure in (("", "fmeasure"), ("-precision", "precision"), ("-recall", "recall"))
} | {
    "bleu": lambda _: bleu(),
    "chrf": lambda _: chrf(),
    "meteor": lambda _: Meteor(),
    "meteor-wordnet": lambda _: meteor_with_synonyms(),
    "length": lambda _: Length(),
}
METRICS = (*_OFFLINE, EMBEDDING, *GREEDY, *BERTSCORE)
"""The names of all metrics."""


@dataclass
class TextScores:
    """The scores of one pair; each metric is either a value or undefined."""

    scores: dict[str, float] = field(default_factory=dict)
    undefined: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TextReport:
    """The scores of all pairs, in order, and how each metric was computed."""

    scores: Sequence[TextScores]
    methods: Mapping[str, str]


def chosen(names: Sequence[str]) -> Sequence[str]:
    """The requested metrics without repetitions; all if none are requested.

    Raises:
        ServiceError: INVALID_ARGUMENT with every unknown name.
    """
    unknown = [
        Violation(f"metrics[{index}]", f"is {name!r}; there are {', '.join(METRICS)}")
        for index, name in enumerate(names)
        if name not in METRICS
    ]
    if unknown:
        raise invalid_fields(unknown)
    return list(dict.fromkeys(names or METRICS))


async def vector_metrics(
    names: Sequence[str],
    pairs: Sequence[TextPair],
    embedder: Embedder | None,
    run: Run,
    options: BertScoreOptions,
) -> Mapping[str, Metric]:
    """Those of the metrics that need vectors, with the vectors of the pairs or what was made of them.

    Args:
        names: Metrics out of ``METRICS``.
        pairs: The texts.
        embedder: Gives the vectors; ``None``: there is none.
        run: Has a thread compute.
        options: How BERTScore is computed.
    """
    metrics: dict[str, Metric] = {}
    if EMBEDDING in names:
        metrics[EMBEDDING] = await similarity((text for pair in pairs for text in pair), embedder)
    if not GREEDY.keys().isdisjoint(names):
        metrics |= await greedy_matching(pairs, embedder, run)
    if not BERTSCORE.keys().isdisjoint(names):
        metrics |= await bertscore(pairs, embedder, run, options)
    return metrics


def score_texts(
    pairs: Sequence[TextPair],
    names: Sequence[str],
    with_vectors: Mapping[str, Metric],
    checkpoint: Checkpoint,
) -> TextReport:
    """Scores every pair by every metric.

    Args:
        pairs: The texts.
        names: Metrics out of ``METRICS``.
        with_vectors: Those of them that need vectors (``vector_metrics``).
        checkpoint: Called before every score.
    """
    texts = RougeTexts()
    metrics = {name: _OFFLINE[name](texts) if name in _OFFLINE else with_vectors[name] for name in names}
    scores: list[TextScores] = []
    for pair in pairs:
        scores.append(TextScores())
        for name, metric in metrics.items():
            checkpoint()
            score = metric.score(pair.candidate, pair.reference)
            if isinstance(score, Undefined):
                scores[-1].undefined[name] = score.reason
            else:
                scores[-1].scores[name] = score
    return TextReport(scores, {name: metric.method for name, metric in metrics.items()})
