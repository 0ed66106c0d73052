"""Scripts that the models under test of a run write before they are judged.

The result holds the author of each script and its provenance as the assessment of the role "author": without
verdicts if the model answered; the candidate of an unusable answer has a ``failure_reason``. If the author
cannot be asked, there is an abstention for each criterion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    CandidateAssessment,
    CandidateResult,
    EvaluateScriptsRequest,
    ScriptsResult,
)
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptRequest, WriteScriptResponse
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.authoring import UNUSABLE_SCRIPTS
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.provenance import add_usage
from dramaturg.judge.roles import AUTHOR
from dramaturg.judge.verdicts import abstained
from dramaturg.service.errors import invalid_fields
from gateway.evaluations.calls import ask
from gateway.evaluations.checks import check_alone
from gateway.evaluations.failures import Failure
from gateway.evaluations.kind import set_seed
from gateway.evaluations.scope import EvaluationScope
from gateway.judges.registry import Registry
from gateway.judges.selection import JudgeAssignment, select_judges


@dataclass(frozen=True)
class WrittenScript:
    """The answer of one model that was asked for a script."""

    candidate: Candidate
    """Without content if there is no script; with a failure_reason if the model's answer is unusable."""
    assessment: CandidateAssessment
    """The author's: provenance, and abstentions if the author could not be asked."""

    @property
    def is_judgeable(self) -> bool:
        return not self.assessment.assessment.verdicts


async def write_scripts(
    request: EvaluateScriptsRequest,
    spec: RunSpec,
    repeat_offset: int,
    registry: Registry,
    scope: EvaluationScope,
) -> Sequence[WrittenScript]:
    """Requests a script for a row's task from each model of a run, concurrently.

    Args:
        request: The row. Candidates get the models' names as ids, made unique within the row.
        spec: The spec of the run.
        repeat_offset: Added to the repeat index, so that a rerun requests new completions.
        registry: The registered judges.
        scope: What the calls of the evaluation share.

    Raises:
        ServiceError: The role author is not served: INVALID_ARGUMENT, ERROR_REASON_JUDGE_UNKNOWN; or
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    assignment = select_author(spec, registry)
    names = _candidate_ids(request, spec)

    async def write(model: str) -> WrittenScript:
        options = writing_options(spec, model, repeat_offset)
        asked = WriteScriptRequest(task=request.task, options=options)
        stub = AuthoringServiceStub(assignment.judge.channel)
        answer = await ask(assignment, scope, stub.WriteScript, asked, WriteScriptResponse)
        return _read(Candidate(id=names[model], model=model), assignment, answer)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(write(model)) for model in dict.fromkeys(spec.models)]
    return [task.result() for task in tasks]


def select_author(spec: RunSpec, registry: Registry) -> JudgeAssignment:
    """The author of the scripts of a run's models; the errors are those of ``write_scripts``."""
    chosen = [selection for selection in spec.judges if selection.role == AUTHOR.name]
    if violations := list(check_alone(chosen, (AUTHOR,))):
        raise invalid_fields(violations)
    (assignment,) = select_judges(chosen, (AUTHOR,), registry, "")
    return assignment


def placeholders(request: EvaluateScriptsRequest, spec: RunSpec) -> Sequence[Candidate]:
    """Candidates in place of those that the models will write, to plan a row before they are asked."""
    return [
        Candidate(id=name, model=model, text="1. A step.")
        for model, name in _candidate_ids(request, spec).items()
    ]


def _candidate_ids(request: EvaluateScriptsRequest, spec: RunSpec) -> Mapping[str, str]:
    """The ids of the candidates that models write, by model, unique within the row."""
    taken = {candidate.id for candidate in request.candidates}
    return {model: f"{model} (written)" if model in taken else model for model in spec.models}


def writing_options(spec: RunSpec, model: str, repeat_offset: int) -> JudgeOptions:
    """The options of a script request to a model under test."""
    options = JudgeOptions(model=model, repeat_index=spec.options.repeat_index + repeat_offset)
    if spec.scripts.HasField("writing_sampling"):
        options.sampling.CopyFrom(spec.scripts.writing_sampling)
    set_seed(options, spec)
    return options


def add_scripts(result: ScriptsResult, scripts: Sequence[WrittenScript]) -> None:
    """Adds the author assessments to a result, and the candidates without a script."""
    places = {candidate.candidate_id: candidate for candidate in result.candidates}
    for script in scripts:
        place = places.get(script.candidate.id)
        if place is None:
            place = result.candidates.add(
                candidate_id=script.candidate.id,
                model=script.candidate.model,
                verdicts=script.assessment.assessment.verdicts,
                reading=verdict_pb2.READING_EMPTY,
            )
        _add(place, script, result)


def _add(place: CandidateResult, script: WrittenScript, result: ScriptsResult) -> None:
    place.assessments.append(script.assessment)
    result.usage.CopyFrom(add_usage(result.usage, script.assessment.assessment.provenance.usage))


def _read(
    candidate: Candidate, assignment: JudgeAssignment, answer: WriteScriptResponse | Failure
) -> WrittenScript:
    author = CandidateAssessment(
        candidate_id=candidate.id, role=assignment.role.name, judge=assignment.judge.name
    )
    failure = answer if isinstance(answer, Failure) else None
    author.assessment.provenance.contract = assignment.role.contract
    if not isinstance(answer, Failure):
        author.assessment.provenance.CopyFrom(answer.provenance)
        if reason := UNUSABLE_SCRIPTS.get(answer.failure):
            candidate.failure_reason = reason
        elif answer.failure:
            failure = Failure(verdict_pb2.ABSTAIN_REASON_UNPARSABLE, answer.failure)
        else:
            candidate.text = answer.text
    if failure is not None:
        rationale = f"There is no script: the author {assignment.judge.name!r} {failure.explanation}."
        verdicts = [abstained(criterion, failure.reason, rationale) for criterion in ABSEVAL]
        author.assessment.verdicts.extend(verdicts)
    author.assessment.provenance.registered_name = assignment.judge.name
    return WrittenScript(candidate, author)
