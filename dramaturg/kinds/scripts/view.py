"""The view of scripts (ABSEval)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult, ScriptsResult
from dramaturg.report.sample_view import Block, SampleView, StepView, SubjectView
from dramaturg.report.views import finding, panel_disagreement, provenances, truncate, verdict
from dramaturg.results.names import reason_name

_ONE_TEXT = "judged as one text without steps, which results do not keep"
_POSSIBLE = {
    verdict_pb2.OUTCOME_PASS: "can be carried out",
    verdict_pb2.OUTCOME_FAIL: "cannot be carried out",
    verdict_pb2.OUTCOME_ABSTAIN: "can perhaps be carried out",
}


def view(index: int, result: ScriptsResult) -> SampleView:
    """The task and its candidates, with the steps that findings refer to."""
    task = result.task
    facts = [("topic", task.topic)] if task.topic else []
    facts += [("constraint", constraint) for constraint in task.constraints]
    return SampleView(
        index=index,
        title=truncate(task.goal),
        sample_id=task.id,
        facts=facts,
        blocks=list(_gold_answer(result)),
        subjects=[_candidate(candidate) for candidate in result.candidates],
        tags=sorted(set(result.tags.items()) - set(facts)),
        filters=[("topic", task.topic)] if task.topic else [],
        disagreement=panel_disagreement(result.candidates),
    )


def _gold_answer(result: ScriptsResult) -> Iterator[Block]:
    if not result.HasField("gold_answer"):
        return
    answer = result.gold_answer
    yield Block(
        title=f"Gold answer: {answer.failure}" if answer.failure else "Gold answer",
        steps=[StepView(truncate(step.text)) for step in answer.script.steps],
        open=True,
    )


def _candidate(candidate: CandidateResult) -> SubjectView:
    judges = defaultdict(list)
    faults: defaultdict[int, list[str]] = defaultdict(list)
    for assessed in candidate.assessments:
        for item in assessed.assessment.verdicts:
            judges[item.criterion].append(assessed.judge)
    for item in candidate.verdicts:
        for found in item.findings:
            for step in found.step_indices:
                faults[step].append(f"{item.criterion}: {finding(found)}")
    panels = [
        f"{assessed.judge} on {item.criterion}: {verdict(item).label}"
        + (f" {reason_name(item.abstain_reason)}" if item.abstain_reason else "")
        + (f" - {item.rationale}" if item.rationale else "")
        for assessed in candidate.assessments
        for item in assessed.assessment.verdicts
        if len(judges[item.criterion]) > 1
    ]
    return SubjectView(
        title=candidate.candidate_id,
        model=candidate.model,
        steps=[
            StepView(truncate(step.text), faults[index]) for index, step in enumerate(candidate.script.steps)
        ],
        notes=[
            *(["no script: " + reason_name(candidate.failure_reason)] if candidate.failure_reason else []),
            *([_ONE_TEXT] if candidate.reading == verdict_pb2.READING_TEXT else []),
            *panels,
            *_step_notes(candidate),
        ],
        judgements=[verdict(item, ", ".join(judges[item.criterion])) for item in candidate.verdicts],
        provenances=provenances(assessed.assessment.provenance for assessed in candidate.assessments),
        tags=[("steps", str(len(candidate.script.steps)))],
    )


def _step_notes(candidate: CandidateResult) -> Iterator[str]:
    """The notes of judges on steps. Steps with equal notes of one judge share one."""
    for assessed in candidate.assessments:
        steps: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for note in assessed.assessment.step_notes:
            stated = [
                f"{name}: {text}" for name, text in (("needs", note.needs), ("after it", note.leaves)) if text
            ]
            said = f" - {truncate(' - '.join(stated))}" if stated else ""
            steps[_POSSIBLE.get(note.outcome, "is noted"), said].append(note.step_index + 1)
        for (possible, said), places in steps.items():
            named = f"step {places[0]}" if len(places) == 1 else f"steps {', '.join(map(str, places))}: each"
            yield f"{assessed.judge}, {named} {possible}{said}"
