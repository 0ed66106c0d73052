"""What the results of an evaluation say of each thing that was judged, whichever evaluation it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN, OUTCOME_PASS, AbstainReason
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import ScriptsResult
from dramaturg.api.evaluation.v1.graphs_pb2 import GraphsResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.texts_pb2 import TextsResult
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DecisionPrompt
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    PREFERENCE_ABSTAIN,
    PREFERENCE_UNSPECIFIED,
)


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
    "texts": Kind("preferred as people do", None, None),
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
    """What of the sample was judged, such as the candidate."""
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
            yield from _scripts(sample.scripts)
        case "decision":
            yield from _decision(sample.decision)
        case "dialogue":
            yield from _dialogue(sample.dialogue)
        case "graphs":
            yield from _graphs(sample.graphs)
        case "texts":
            yield from _texts(sample.texts)


def _scripts(result: ScriptsResult) -> Iterator[Judgement]:
    for candidate in result.candidates:
        for verdict in candidate.verdicts:
            yield Judgement(
                result.task.id or result.task.goal,
                candidate.candidate_id,
                candidate.model,
                verdict.criterion,
                None if verdict.outcome == OUTCOME_ABSTAIN else verdict.outcome == OUTCOME_PASS,
                verdict.abstain_reason,
                verdict.confidence if verdict.HasField("confidence") else None,
            )


def _decision(result: DecisionResult) -> Iterator[Judgement]:
    if not result.gold:
        return
    for choice in result.choices:
        prompt = DecisionPrompt.Name(choice.prompt).removeprefix("DECISION_PROMPT_").lower()
        yield Judgement(
            result.decision.id,
            choice.model,
            choice.model,
            f"{prompt}, options swapped" if choice.options_swapped else prompt,
            choice.correct if choice.HasField("correct") else None,
            choice.abstain_reason,
        )


def _dialogue(result: DialogueResult) -> Iterator[Judgement]:
    for one in result.ratings:
        yield Judgement(
            result.script.id,
            one.model,
            one.model,
            one.judge,
            one.rating.value if one.rating.HasField("value") else None,
            one.rating.abstain_reason,
        )


def _graphs(result: GraphsResult) -> Iterator[Judgement]:
    for graph in result.graphs:
        yield Judgement(
            result.reference.id,
            graph.model,
            graph.model,
            "edges",
            graph.score.measures.f1 if graph.HasField("score") else None,
            graph.abstain_reason,
        )


def _texts(result: TextsResult) -> Iterator[Judgement]:
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
