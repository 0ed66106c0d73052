"""The results of decisions (Choice-75): a row for each choice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.decision_pb2 import Choice
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult, ModelChoice
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DecisionPrompt
from dramaturg.results.kind import (
    Comparability,
    Judgement,
    ResultKind,
    row_judgement,
    set_abstention,
    set_provenance,
)
from dramaturg.results.names import value_name

SOURCE_TAG, SOURCE = "source", "choice75"
"""The tag that every row of the released data has, and its value."""


def _rows(result: DecisionResult, texts: bool) -> Iterator[RunResult]:
    del texts
    for choice in result.choices:
        row = RunResult(
            model=choice.model,
            candidate_id=variant_name(choice),
            measure=f"correct/{variant_name(choice)}",
            rationale=choice.text,
            role="author",
        )
        set_provenance(row, choice.provenance)
        if choice.choice:
            row.label = value_name(Choice, choice.choice)
        if choice.HasField("correct"):
            row.value = float(choice.correct)
            row.failure_reason = choice.failure_reason
            row.outcome = verdict_pb2.OUTCOME_PASS if choice.correct else verdict_pb2.OUTCOME_FAIL
        else:  # without a gold label no choice is right or wrong
            set_abstention(row, choice.abstain_reason or verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE)
        yield row


def variant_name(choice: ModelChoice) -> str:
    """How a decision was put to a model, e.g. "story, swapped"."""
    name = value_name(DecisionPrompt, choice.prompt).lower()
    return f"{name}, swapped" if choice.options_swapped else name


def choice_name(choice: int) -> str:
    """A choice as it is shown, such as "option-1". Empty: an abstention."""
    if not choice:
        return ""
    return value_name(Choice, choice).lower().replace("_", "-")


def _judgements(result: DecisionResult, rows: Iterable[RunResult]) -> Iterator[Judgement]:
    for row in rows if result.gold else ():
        yield row_judgement(result.decision.id, row.model, row.candidate_id, row)


def _unscored(result: DecisionResult) -> str:
    if result.gold or not any(choice.choice for choice in result.choices):
        return ""
    return 'Without a label no choice is right or wrong: a row has it in "gold".'


DECISIONS = ResultKind(
    name="decision",
    json_member="decision",
    rows=_rows,
    ranking="By the share of correct choices.",
    primary_measure="correct",
    setup_prefix="correct/",
    comparability=Comparability("chosen rightly", _judgements),
    unscored=_unscored,
)
