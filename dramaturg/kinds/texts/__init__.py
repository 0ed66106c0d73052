"""The results of texts judged by a rubric: a row for each verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.api.evaluation.v1.texts_pb2 import TextsResult
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale
from dramaturg.results.kind import (
    Comparability,
    JudgeAnswer,
    ResultKind,
    assessment_answers,
    candidate_judgements,
    set_abstention,
)


def _rows(result: TextsResult, texts: bool) -> Iterator[RunResult]:
    scales = {one.id: one.scale for one in result.criteria if one.HasField("scale")}
    for text in result.texts:
        # Criteria with a rule have judges of their own.
        judges: dict[str, list[CandidateAssessment]] = {}
        for one in text.assessments:
            for verdict in one.assessment.verdicts:
                judges.setdefault(verdict.criterion, []).append(one)
        for verdict in text.verdicts:
            assessments = judges.get(verdict.criterion, ())
            alone = assessments[0] if len(assessments) == 1 else None
            # One of several registered panels has no rows of its own.
            panels = {(one.role, one.panel) for one in assessments}
            panels = panels if all(panel for _, panel in panels) else set()
            row = RunResult(model=text.model, candidate_id=text.text_id, measure=verdict.criterion)
            _set_value(row, verdict, scales.get(verdict.criterion))
            if verdict.units:
                row.label = units_label(verdict)
            if verdict.HasField("confidence"):
                row.confidence = verdict.confidence
            if verdict.HasField("measured_confidence"):
                row.measured_confidence = verdict.measured_confidence
            row.failure_reason = text.failure_reason
            if alone is not None:
                row.role, row.judge = alone.role, alone.panel or alone.judge
            elif len(panels) == 1:
                ((row.role, row.judge),) = panels
            if texts:
                row.rationale = verdict.rationale
                row.findings.extend(verdict.findings)
                if alone is not None:
                    row.provenance.CopyFrom(alone.assessment.provenance)
            yield row


def _set_value(row: RunResult, verdict: Verdict, scale: CriterionScale | None) -> None:
    if verdict.outcome == verdict_pb2.OUTCOME_ABSTAIN:
        set_abstention(row, verdict.abstain_reason)
    elif scale is None:
        row.outcome = verdict.outcome
        row.value = float(verdict.outcome == verdict_pb2.OUTCOME_PASS)
    elif (score := score_of(verdict, scale)) is None:
        set_abstention(row, verdict_pb2.ABSTAIN_REASON_UNPARSABLE)
    else:
        row.value = (score - scale.lowest) / (scale.highest - scale.lowest)
        row.label = score_label(score, scale)


def score_of(verdict: Verdict, scale: CriterionScale) -> float | None:
    """The score of a verdict. None: it abstains, or, in results of other origin, is not on the scale."""
    if verdict.outcome != verdict_pb2.OUTCOME_SCORED or scale.lowest >= scale.highest:
        return None
    return verdict.score if scale.lowest <= verdict.score <= scale.highest else None


def score_label(score: float, scale: CriterionScale) -> str:
    """A score with its scale, for example "4 of 1 to 5"."""
    return f"{score:.4g} of {scale.lowest} to {scale.highest}"


def units_label(verdict: Verdict) -> str:
    """How many of its turns or calls pass, for example "2 of 3 pass"."""
    passing = sum(one.outcome == verdict_pb2.OUTCOME_PASS for one in verdict.units)
    return f"{passing} of {len(verdict.units)} pass"


def _groups(result: TextsResult) -> Iterator[tuple[str, str]]:
    if result.task.topic:
        yield "topic", result.task.topic


def _answers(result: TextsResult, rows: Iterable[RunResult]) -> Iterator[JudgeAnswer]:
    del rows
    for one in result.texts:
        yield from assessment_answers(one.assessments)


TEXTS = ResultKind(
    name="texts",
    json_member="texts",
    rows=_rows,
    ranking="By the mean over all criteria: 1 for PASS, 0 for FAIL, a score by its place on the scale.",
    answers=_answers,
    comparability=Comparability(
        "passed, or the place of the score on its scale from 0 to 1",
        candidate_judgements,
        scale=(0.0, 1.0),
        labelled=True,
    ),
    groups=_groups,
)
