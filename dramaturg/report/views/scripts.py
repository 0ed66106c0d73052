"""Scripts (ABSEval): each candidate with the steps at fault marked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dramaturg.api.evaluation.v1.evaluation_service_pb2 import CandidateResult, ScriptsResult
from dramaturg.report.views.common import finding, provenances, reason, verdict
from dramaturg.report.views.shapes import Block, SampleView, StepView, SubjectView


def scripts_view(index: int, result: ScriptsResult) -> SampleView:
    """One task and its candidates."""
    task = result.task
    facts = [("topic", task.topic)] if task.topic else []
    facts += [("constraint", constraint) for constraint in task.constraints]
    return SampleView(
        index=index,
        title=task.goal,
        sample_id=task.id,
        facts=facts,
        blocks=list(_gold_answer(result)),
        subjects=[_candidate(candidate) for candidate in result.candidates],
        tags=sorted(set(result.tags.items()) - set(facts)),
    )


def _gold_answer(result: ScriptsResult) -> Iterator[Block]:
    if not result.HasField("gold_answer"):
        return
    answer = result.gold_answer
    yield Block(
        title=f"Gold answer: {answer.failure}" if answer.failure else "Gold answer",
        steps=[StepView(step.text) for step in answer.script.steps],
    )


def _candidate(candidate: CandidateResult) -> SubjectView:
    judges = defaultdict(list)
    faults: defaultdict[int, list[str]] = defaultdict(list)
    for assessed in candidate.assessments:
        for said in assessed.assessment.verdicts:
            judges[said.criterion].append(assessed.judge)
    for said in candidate.verdicts:
        for found in said.findings:
            for step in found.step_indices:
                faults[step].append(f"{said.criterion}: {finding(found)}")
    panels = [
        f"{assessed.judge} on {said.criterion}: {verdict(said).said}"
        + (f" {reason(said.abstain_reason)}" if said.abstain_reason else "")
        + (f" - {said.rationale}" if said.rationale else "")
        for assessed in candidate.assessments
        for said in assessed.assessment.verdicts
        if len(judges[said.criterion]) > 1
    ]
    return SubjectView(
        title=candidate.candidate_id,
        model=candidate.model,
        steps=[StepView(step.text, faults[place]) for place, step in enumerate(candidate.script.steps)],
        notes=panels,
        judgements=[verdict(said, ", ".join(judges[said.criterion])) for said in candidate.verdicts],
        provenances=provenances(assessed.assessment.provenance for assessed in candidate.assessments),
    )
