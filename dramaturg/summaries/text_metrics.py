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
