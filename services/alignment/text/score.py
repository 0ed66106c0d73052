"""Scores of pairs of texts by the requested metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from dramaturg.service.errors import Violation, invalid_fields
from services.alignment.text.bertscore import BERTSCORE, BertScoreOptions, bertscore
from services.alignment.text.greedy import GREEDY, Run, greedy_matching
from services.alignment.text.metric import Metric, TextPair, Undefined
from services.alignment.text.overlap import (
    Length,
    Meteor,
    Rouge,
    RougeTexts,
    bleu,
    chrf,
    meteor_with_synonyms,
)
from services.alignment.text.similarity import Embedder, similarity
from services.alignment.workers import Checkpoint

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
