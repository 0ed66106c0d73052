"""Has the models under test of a run of scripts write, before what they wrote is judged.

Who wrote and how stands in the result as the assessment of the role "author": without verdicts where there is
a script, and with an abstention for every criterion where there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Assessment
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import (
    CandidateAssessment,
    CandidateResult,
    EvaluateScriptsRequest,
    ScriptsResult,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptRequest, WriteScriptResponse
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.roles import AUTHOR
from dramaturg.judge.usage import add_usage
from dramaturg.judge.verdicts import abstained
from dramaturg.service.errors import invalid_fields
from gateway.evaluations.calls import Timeouts, ask
from gateway.evaluations.checks import check_alone
from gateway.evaluations.failures import Failure
from gateway.judges.registry import Registry
from gateway.judges.selection import JudgeAssignment, select_judges
from gateway.runs.engine.spec import writing_options

_UNUSABLE = {
    "refused": verdict_pb2.ABSTAIN_REASON_REFUSED,
    "truncated": verdict_pb2.ABSTAIN_REASON_TRUNCATED,
}
"""What a model may say in place of a script. An empty answer is an empty script, and is judged as one."""


@dataclass(frozen=True)
class Written:
    """What came of asking one model for a script."""

    candidate: Candidate
    """What it wrote; without content where there is nothing to judge."""
    assessment: CandidateAssessment
    """The author's: how it was written, or why it was not."""

    @property
    def judgeable(self) -> bool:
        """Whether there is something to judge."""
        return not self.assessment.assessment.verdicts


async def write_scripts(
    request: EvaluateScriptsRequest,
    spec: RunSpec,
    repeat_offset: int,
    registry: Registry,
    timeouts: Timeouts,
) -> Sequence[Written]:
    """Has every model of a run write a script for a row's task, all side by side.

    Args:
        request: The row. Candidates get ids that it does not have yet: the models' names.
        spec: What the run does.
        repeat_offset: Added to the repeat index, so that a rerun buys fresh completions.
        registry: The judges that there are.
        timeouts: How long to wait.

    Raises:
        ServiceError: Nobody plays the author: INVALID_ARGUMENT, ERROR_REASON_JUDGE_UNKNOWN; or
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    chosen = [selection for selection in spec.judges if selection.role == AUTHOR.name]
    if violations := list(check_alone(chosen, (AUTHOR,))):
        raise invalid_fields(violations)
    (assignment,) = select_judges(chosen, (AUTHOR,), registry, "")
    taken = {candidate.id for candidate in request.candidates}

    async def write(model: str) -> Written:
        options = writing_options(spec, model, repeat_offset)
        asked = WriteScriptRequest(task=request.task, options=options)
        stub = AuthoringServiceStub(assignment.judge.channel)
        answer = await ask(assignment, timeouts, stub.WriteScript, asked, WriteScriptResponse)
        name = f"{model} (written)" if model in taken else model
        return _read(Candidate(id=name, model=model), assignment, answer)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(write(model)) for model in dict.fromkeys(spec.models)]
    return [task.result() for task in tasks]


def add_written(result: ScriptsResult, written: Sequence[Written]) -> None:
    """Adds to a result who wrote its candidates, and the candidates that nobody could write."""
    places = {candidate.candidate_id: candidate for candidate in result.candidates}
    for one in written:
        place = places.get(one.candidate.id)
        if place is None:
            place = result.candidates.add(
                candidate_id=one.candidate.id,
                model=one.candidate.model,
                verdicts=one.assessment.assessment.verdicts,
                reading=verdict_pb2.READING_EMPTY,
            )
        _add(place, one, result)


def _add(place: CandidateResult, one: Written, result: ScriptsResult) -> None:
    place.assessments.append(one.assessment)
    result.usage.CopyFrom(add_usage(result.usage, one.assessment.assessment.provenance.usage))


def _read(
    candidate: Candidate, assignment: JudgeAssignment, answer: WriteScriptResponse | Failure
) -> Written:
    author = CandidateAssessment(
        candidate_id=candidate.id, role=assignment.role.name, judge=assignment.judge.name
    )
    if isinstance(answer, Failure):
        rationale = f"There is no script: the author {assignment.judge.name!r} {answer.explanation}."
        author.assessment.CopyFrom(_abstention(answer.reason, rationale))
        author.assessment.provenance.contract = assignment.role.contract
    else:
        if reason := _UNUSABLE.get(answer.failure):
            author.assessment.CopyFrom(
                _abstention(reason, f"There is no script: the model's answer was {answer.failure}.")
            )
        else:
            candidate.text = answer.text
        author.assessment.provenance.CopyFrom(answer.provenance)
    author.assessment.provenance.registered_name = assignment.judge.name
    return Written(candidate, author)


def _abstention(reason: AbstainReason.ValueType, rationale: str) -> Assessment:
    return Assessment(verdicts=[abstained(criterion, reason, rationale) for criterion in ABSEVAL])
