"""Judgements of all evaluations in one form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_FAIL, OUTCOME_PASS, AbstainReason
from dramaturg.api.evaluation.v1.pairs_pb2 import PairResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    PREFERENCE_ABSTAIN,
    PREFERENCE_UNSPECIFIED,
)
from dramaturg.judge.roles import RATING_JUDGE
from dramaturg.results.dialogues import is_panel_mean
from dramaturg.results.rows import flatten


class Kind(NamedTuple):
    """What an evaluation's values are."""

    value: str
    """What a value says, in words."""
    lowest: float | None
    highest: float | None
    """The ends of the scale of scores; ``None`` for verdicts."""


KINDS = {
    "scripts": Kind("passed", None, None),
    "decision": Kind("chosen rightly", None, None),
    "pair": Kind("preferred as people do", None, None),
    "dialogue": Kind("rating", 1.0, 10.0),
    "graphs": Kind("F1 of edges", 0.0, 1.0),
}
"""By the name of the result in ``RunSample``."""


@dataclass(frozen=True)
class Judgement:
    """One thing that was judged."""

    sample: str
    """The id of the sample; of a task without one, its goal. May be empty."""
    subject: str
    """The judged part of the sample, such as the candidate."""
    model: str
    """The model that wrote it."""
    aspect: str
    """The criterion, prompt, judge or method."""
    value: bool | float | None
    """Whether it was passed, or its score; ``None``: an abstention."""
    reason: AbstainReason.ValueType = AbstainReason.ABSTAIN_REASON_UNSPECIFIED
    confidence: float | None = None


def judgements(sample: RunSample) -> Iterator[Judgement]:
    """What a sample's result says. A sample that failed says nothing.

    Things without a right answer, such as decisions without a gold label, are not among them.
    """
    match sample.WhichOneof("result"):
        case "scripts":
            task = sample.scripts.task
            for row in flatten(sample, texts=False):
                yield _of_row(task.id or task.goal, row.candidate_id, row.measure, row)
        case "decision":
            for row in flatten(sample) if sample.decision.gold else ():
                yield _of_row(sample.decision.decision.id, row.model, row.candidate_id, row)
        case "dialogue":
            for row in flatten(sample):
                if row.role == RATING_JUDGE.name and not is_panel_mean(row):
                    yield _of_row(sample.dialogue.script.id, row.model, row.judge, row)
        case "graphs":
            for row in flatten(sample):
                if row.measure == "f1":
                    yield _of_row(sample.graphs.reference.id, row.model, "edges", row)
        case "pair":
            yield from _pair(sample.pair)


def _of_row(sample: str, subject: str, aspect: str, row: RunResult) -> Judgement:
    value: bool | float | None = row.value if row.HasField("value") else None
    if value is not None and row.outcome in (OUTCOME_PASS, OUTCOME_FAIL):
        value = row.outcome == OUTCOME_PASS
    confidence = row.confidence if row.HasField("confidence") else None
    return Judgement(sample, subject, row.model, aspect, value, row.abstain_reason, confidence)


def _pair(result: PairResult) -> Iterator[Judgement]:
    if not result.human_preference:
        return
    models = f"{result.first_model} and {result.second_model}"
    for one in result.comparisons:
        said = one.comparison.preference
        abstained = said in (PREFERENCE_UNSPECIFIED, PREFERENCE_ABSTAIN)
        yield Judgement(
            result.id,
            models,
            models,
            f"{one.method} by {one.judge}" if one.judge else one.method,
            None if abstained else said == result.human_preference,
        )
