"""The results of scripts (ABSEval): a row for each verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    CandidateAssessment,
    CandidateResult,
    ScriptsResult,
)
from dramaturg.results.kind import (
    Comparability,
    JudgeAnswer,
    ResultKind,
    assessment_answers,
    candidate_judgements,
)


def _rows(result: ScriptsResult, texts: bool) -> Iterator[RunResult]:
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
            if not verdict.abstain_reason:
                row.failure_reason = candidate.failure_reason
            if verdict.outcome in {verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL}:
                row.value = float(verdict.outcome == verdict_pb2.OUTCOME_PASS)
            if verdict.HasField("confidence"):
                row.confidence = verdict.confidence
            if verdict.HasField("measured_confidence"):
                row.measured_confidence = verdict.measured_confidence
            by = judged.get(verdict.criterion, [])
            if len(by) == 1:
                row.role, row.judge = by[0].role, by[0].panel or by[0].judge
            elif by and by[0].panel and len({(one.role, one.panel) for one in by}) == 1:
                row.role, row.judge = by[0].role, by[0].panel
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


def _groups(result: ScriptsResult) -> Iterator[tuple[str, str]]:
    if result.task.topic:
        yield "topic", result.task.topic
    for candidate in result.candidates:
        yield "steps", str(len(candidate.script.steps))


def _answers(result: ScriptsResult, rows: Iterable[RunResult]) -> Iterator[JudgeAnswer]:
    del rows
    for one in result.candidates:
        yield from assessment_answers(one.assessments)


SCRIPTS = ResultKind(
    name="scripts",
    json_member="candidates",
    rows=_rows,
    ranking="By the share of verdicts that are PASS, over all criteria.",
    answers=_answers,
    comparability=Comparability("passed", candidate_judgements, labelled=True),
    groups=_groups,
)
