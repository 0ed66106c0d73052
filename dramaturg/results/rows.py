"""Flat judgements of a sample: the rows of tables, sums and exports."""

from __future__ import annotations

from collections.abc import Iterator

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.decision_pb2 import Choice
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult, ReplyRating
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    CandidateAssessment,
    CandidateResult,
    ScriptsResult,
)
from dramaturg.api.evaluation.v1.texts_pb2 import TextsResult
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DecisionPrompt
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairResponse, Preference
from dramaturg.results.graph_rows import flatten_graphs
from dramaturg.results.ratings import is_aced, reply_ratings

ACED = " (aced)"
"""Ends the measure of ratings on a script that every model aces: they are in no mean rating."""

_RATING_ROLE = "rating-judge"
_WINS = {
    # Of the first text; the second has one minus it.
    pair_judge_service_pb2.PREFERENCE_FIRST: 1.0,
    pair_judge_service_pb2.PREFERENCE_SECOND: 0.0,
    pair_judge_service_pb2.PREFERENCE_TIE: 0.5,
}


def flatten(sample: RunSample, *, texts: bool = True) -> list[RunResult]:
    """The judgements of a sample, in the order of its result; none if the sample failed.

    Args:
        sample: The sample.
        texts: Whether rationale, findings and provenance are needed. If False, those of scripts (the bulk of
            the data) are not copied; other kinds may still have them.
    """
    match sample.WhichOneof("result"):
        case "scripts":
            rows = _scripts(sample.scripts, texts=texts)
        case "texts":
            rows = _texts(sample.texts)
        case "graphs":
            rows = flatten_graphs(sample.graphs)
        case "decision":
            rows = _decision(sample.decision)
        case "dialogue":
            rows = _dialogue(sample.dialogue)
        case _:
            return []
    flat = list(rows)
    for row in flat:
        row.sample_index = sample.index
        row.sample_id = sample.sample_id
        row.tags.update(sample.tags)
    return flat


def is_panel_mean(row: RunResult) -> bool:
    """Whether a row is the mean of a panel's ratings, which are rows of their own."""
    return row.role == _RATING_ROLE and not row.judge


def _scripts(result: ScriptsResult, *, texts: bool) -> Iterator[RunResult]:
    for candidate in result.candidates:
        judged = _assessments(candidate)
        for verdict in candidate.verdicts:
            row = RunResult(
                model=candidate.model,
                candidate_id=candidate.candidate_id,
                measure=verdict.criterion,
                outcome=verdict.outcome,
                abstain_reason=verdict.abstain_reason,
            )
            if verdict.outcome in {verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL}:
                row.value = float(verdict.outcome == verdict_pb2.OUTCOME_PASS)
            if verdict.HasField("confidence"):
                row.confidence = verdict.confidence
            by = judged.get(verdict.criterion, [])
            if len(by) == 1:
                row.role, row.judge = by[0].role, by[0].judge
            if texts:
                row.rationale = verdict.rationale
                row.findings.extend(verdict.findings)
                if len(by) == 1:
                    row.provenance.CopyFrom(by[0].assessment.provenance)
            yield row


def _assessments(candidate: CandidateResult) -> dict[str, list[CandidateAssessment]]:
    """Assessments by criterion: one of a single judge, several of a panel."""
    judged: dict[str, list[CandidateAssessment]] = {}
    for assessed in candidate.assessments:
        for verdict in assessed.assessment.verdicts:
            judged.setdefault(verdict.criterion, []).append(assessed)
    return judged


def _decision(result: DecisionResult) -> Iterator[RunResult]:
    for choice in result.choices:
        row = RunResult(
            model=choice.model,
            candidate_id=_variant(choice.prompt, choice.options_swapped),
            measure=f"correct/{_variant(choice.prompt, choice.options_swapped)}",
            rationale=choice.text,
            role="author",
        )
        _set_provenance(row, choice.provenance)
        if not choice.abstain_reason:
            row.label = Choice.Name(choice.choice).removeprefix("CHOICE_")
        if choice.HasField("correct"):
            row.value = float(choice.correct)
            row.outcome = verdict_pb2.OUTCOME_PASS if choice.correct else verdict_pb2.OUTCOME_FAIL
        else:  # without a gold label no choice is right or wrong
            _abstain(row, choice.abstain_reason or verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE)
        yield row


def _variant(prompt: DecisionPrompt.ValueType, swapped: bool) -> str:
    name = DecisionPrompt.Name(prompt).removeprefix("DECISION_PROMPT_").lower()
    return f"{name}, swapped" if swapped else name


def _dialogue(result: DialogueResult) -> Iterator[RunResult]:
    ratings = reply_ratings(result.ratings)
    aced = ACED if is_aced(ratings) else ""
    for model, rating in ratings.items():
        panel = [rated for rated in result.ratings if rated.model == model]
        if len(panel) == 1:
            yield _rating(panel[0], f"rating{aced}")
            continue
        row = RunResult(model=model, measure=f"rating{aced}", role=_RATING_ROLE)
        if rating is None:
            _abstain(row, panel[0].rating.abstain_reason)
        else:
            row.value = rating
        yield row
        yield from (_rating(rated, f"rating/{rated.judge}{aced}") for rated in panel)
    for compared in result.comparisons:
        models = compared.first_model, compared.second_model
        yield from _comparison("win", models, compared.judge, compared.comparison)
    for scored in result.scores:
        row = RunResult(
            model=scored.model,
            measure=f"score/{scored.attribute}" if scored.attribute else "score",
            role="text-scorer",
            judge=scored.judge,
        )
        _set_provenance(row, scored.provenance)
        if scored.score.HasField("value"):
            row.value = scored.score.value
        else:
            _abstain(row, scored.score.abstain_reason)
        yield row


def _rating(rated: ReplyRating, measure: str) -> RunResult:
    rating = rated.rating
    row = RunResult(
        model=rated.model,
        measure=measure,
        rationale=rating.rationale,
        role=_RATING_ROLE,
        judge=rated.judge,
    )
    _set_provenance(row, rating.provenance)
    if rating.HasField("value"):
        row.value = rating.value
    else:
        _abstain(row, rating.abstain_reason)
    return row


def _texts(result: TextsResult) -> Iterator[RunResult]:
    models = result.first_model, result.second_model
    # A sweep compares the same texts once for each number of roles: these are setups of their own.
    count = result.tags.get("k", "")
    for compared in result.comparisons:
        swept = f" k={count}" if count and compared.method == "roles" else ""
        yield from _comparison(f"win/{compared.method}{swept}", models, compared.judge, compared.comparison)


def _comparison(
    measure: str, models: tuple[str, str], judge: str, comparison: ComparePairResponse
) -> Iterator[RunResult]:
    """One row for each of the two texts; their values add up to 1."""
    for index, model in enumerate(models):
        row = RunResult(
            model=model,
            candidate_id=("first", "second")[index],
            measure=measure,
            label=models[1 - index],
            role="pair-judge",
            judge=judge,
        )
        _set_provenance(row, comparison.provenance)
        won = _WINS.get(comparison.preference)
        if won is None:
            _abstain(row, _reason(comparison))
        else:
            row.value = won if index == 0 else 1.0 - won
            row.rationale = f"prefers {Preference.Name(comparison.preference).removeprefix('PREFERENCE_')}"
        if len(comparison.votes) == 1:  # the rationales of several voters stay in the sample
            vote = comparison.votes[0]
            rationales = dict.fromkeys(ballot.rationale for ballot in vote.ballots if ballot.rationale)
            row.rationale = "\n".join(filter(None, (row.rationale, *rationales)))
            if vote.HasField("confidence"):
                row.confidence = vote.confidence
        yield row


def _reason(comparison: ComparePairResponse) -> AbstainReason.ValueType:
    reasons = (vote.abstain_reason for vote in comparison.votes if vote.abstain_reason)
    return next(reasons, verdict_pb2.ABSTAIN_REASON_UNSPECIFIED)


def _abstain(row: RunResult, reason: AbstainReason.ValueType) -> None:
    row.outcome = verdict_pb2.OUTCOME_ABSTAIN
    row.abstain_reason = reason


def _set_provenance(row: RunResult, provenance: Provenance) -> None:
    if provenance.ByteSize():
        row.provenance.CopyFrom(provenance)
