"""Counts samples of scripts that were judged without the gold answer that they asked for."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.scripts_pb2 import GoldAnswerFigures, ScriptsResult
from dramaturg.results.names import abstention_name

DEFAULT_MAX_MISSING = 0.1
"""The share of samples judged without a gold answer above which an evaluation is partial by default
(``RunPolicy.max_missing_gold_answer_fraction``)."""


def missing_reason(result: ScriptsResult) -> str | None:
    """The reason for which a sample has no gold answer. Empty: it has one. None: it asked for none."""
    if not result.HasField("gold_answer"):
        return None
    answer = result.gold_answer
    return abstention_name(answer.failure_reason) if answer.failure else ""


def count(figures: GoldAnswerFigures, reason: str | None, samples: int = 1) -> None:
    """Adds samples to the figures, or takes them out if ``samples`` is negative.

    Args:
        figures: The figures.
        reason: See ``missing_reason``.
        samples: The number of samples.
    """
    if reason is None:
        return
    figures.sample_count += samples
    if reason:
        figures.missing_count += samples
        figures.missing_by_reason[reason] += samples
        if not figures.missing_by_reason[reason]:
            del figures.missing_by_reason[reason]


def describe_missing(figures: GoldAnswerFigures) -> str:
    """The samples without a gold answer and the reasons, as text. Empty: there are none."""
    if not figures.missing_count:
        return ""
    ordered = sorted(figures.missing_by_reason.items(), key=lambda item: (-item[1], item[0]))
    reasons = ", ".join(f"{name} {number}" for name, number in ordered)
    samples = f"{figures.missing_count:,} of {figures.sample_count:,} samples"
    return f"{samples} were judged without the gold answer that they asked for ({reasons})"


def too_many_missing(figures: GoldAnswerFigures, most: float | None = None) -> str:
    """Why the missing gold answers make an evaluation partial. Empty: they do not.

    Args:
        figures: The figures of all samples.
        most: The share of the samples that may be without one. None: ``DEFAULT_MAX_MISSING``.
    """
    most = DEFAULT_MAX_MISSING if most is None else most
    if figures.missing_count <= most * figures.sample_count:
        return ""
    return f"{describe_missing(figures)}; a share of {most:.3g} is allowed"
