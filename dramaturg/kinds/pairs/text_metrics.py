"""The names of text metrics."""

from __future__ import annotations

DEFAULT_METRICS = (
    "rouge-1",
    "rouge-2",
    "rouge-l",
    "bleu",
    "chrf",
    "meteor",
    "embedding",
    "embedding-greedy",
    "embedding-greedy-precision",
    "embedding-greedy-recall",
)
"""The metrics used by default."""
METRICS = (
    *DEFAULT_METRICS,
    "rouge-lsum",
    "meteor-wordnet",
    *(f"bertscore{figure}" for figure in ("", "-precision", "-recall")),
    *(
        f"{variant}-{figure}"
        for variant in ("rouge-1", "rouge-2", "rouge-l", "rouge-lsum")
        for figure in ("precision", "recall")
    ),
)
"""The metrics of AlignmentService except "length", which is part of every comparison, and "bertscore-idf":
both texts of a pair have one source, and one document gives its tokens no idf weights.
"""

_VARIANTS = {
    "rouge-1": "ROUGE-1, Porter stemmer",
    "rouge-2": "ROUGE-2, Porter stemmer",
    "rouge-l": "ROUGE-L of whole texts, Porter stemmer",
    "rouge-lsum": "ROUGE-L by sentences, Porter stemmer",
    "bleu": "sentence BLEU of sacrebleu",
    "chrf": "chrF of sacrebleu",
    "meteor": "METEOR of nltk, exact and stem matches",
    "meteor-wordnet": "METEOR of nltk, exact, stem and synonym matches",
    "embedding": "cosine of sentence vectors",
    "embedding-greedy": "greedy matching of token vectors, not BERTScore",
    "bertscore": "BERTScore of the configured encoder and layer, no idf weights",
}
_FIGURES = ("precision", "recall")
_WITH_FIGURES = ("rouge-", "embedding-greedy", "bertscore")


def variant(metric: str) -> str:
    """The variant of a metric in words; empty for the name of none."""
    base, _, figure = metric.rpartition("-")
    if figure not in _FIGURES:
        base, figure = metric, "F1"
    if base not in _VARIANTS:
        return ""
    return f"{_VARIANTS[base]}, {figure}" if base.startswith(_WITH_FIGURES) else _VARIANTS[base]
