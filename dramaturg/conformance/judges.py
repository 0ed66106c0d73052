"""What every judge of scripts must keep to: the agents' contracts and ScriptJudgeService."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Assessment, Outcome, Reading
from dramaturg.api.identity.v1 import identity_service_pb2, identity_service_pb2_grpc
from dramaturg.conformance.kit import RequirementError, Subject, check
from dramaturg.judge import criteria
from dramaturg.judge.roles import Question
from dramaturg.service.errors import from_rpc_error

TASK = Task(goal="Make a cup of tea without a kettle", constraints=["without a kettle"], topic="Food")
STEPS = (
    "Fill a pot with water.",
    "Heat the water on the stove until it boils.",
    "Put a tea bag into a cup.",
    "Pour the hot water over the tea bag.",
    "Take the tea bag out after three minutes.",
)
SEMANTIC_VERSION = re.compile(r"\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?")
KEBAB_CASE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
SNAKE_CASE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")


def script(steps: Sequence[str]) -> Candidate:
    """A candidate of these steps."""
    return Candidate(id="candidate", script=Script(steps=[Step(text=step) for step in steps]))


async def ask(
    subject: Subject,
    candidate: Candidate,
    *,
    task: Task = TASK,
    pool: Sequence[Candidate] = (),
) -> Assessment:
    """Asks the judge under test about one candidate."""
    question = Question(
        task=task,
        candidate=candidate,
        reference=Script(steps=[Step(text=step) for step in STEPS]),
        pool=pool,
        options=JudgeOptions(model=subject.model),
    )
    return await subject.role.ask(subject.channel, question, subject.timeout)


async def identity(subject: Subject) -> identity_service_pb2.Identity:
    """Asks the judge under test who it is."""
    stub = identity_service_pb2_grpc.IdentityServiceStub(subject.channel)
    request = identity_service_pb2.GetIdentityRequest(contract=subject.role.contract)
    response = await stub.GetIdentity(request, timeout=subject.timeout)
    return response.identity


def require(condition: bool, message: str) -> None:
    """Raises RequirementError unless the condition holds."""
    if not condition:
        raise RequirementError(message)


def require_sound(assessment: Assessment, expected: Sequence[str], step_count: int) -> None:
    """Requires that an assessment is well formed.

    Args:
        assessment: The assessment.
        expected: The criteria it must judge, in order.
        step_count: How many steps the candidate has.
    """
    judged = [verdict.criterion for verdict in assessment.verdicts]
    require(judged == list(expected), f"judged {judged}, not {list(expected)}")
    for verdict in assessment.verdicts:
        where = f"the verdict of {verdict.criterion}"
        require(
            verdict.outcome in (Outcome.OUTCOME_PASS, Outcome.OUTCOME_FAIL, Outcome.OUTCOME_ABSTAIN),
            f"{where} has outcome {verdict.outcome}, which is none of PASS, FAIL and ABSTAIN",
        )
        abstained = verdict.outcome == Outcome.OUTCOME_ABSTAIN
        reasoned = verdict.abstain_reason != AbstainReason.ABSTAIN_REASON_UNSPECIFIED
        require(abstained == reasoned, f"{where} must have an abstain_reason if and only if it abstains")
        for field in ("score", "confidence"):
            value = getattr(verdict, field)
            require(
                not verdict.HasField(field) or 0.0 <= value <= 1.0,
                f"{where} has {field} {value}, which is not in [0, 1]",
            )
        for finding in verdict.findings:
            indices = list(finding.step_indices)
            require(
                indices == sorted(set(indices)) and all(index < step_count for index in indices),
                f"{where} has a finding at steps {indices}; they must ascend and be below {step_count}",
            )


@check("The server reports the contract as SERVING through grpc.health.v1.Health.")
async def health(subject: Subject) -> None:
    """Checks the health service."""
    request = health_pb2.HealthCheckRequest(service=subject.role.contract)
    response = await health_pb2_grpc.HealthStub(subject.channel).Check(request, timeout=subject.timeout)
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)
    require(status == "SERVING", f"the health of {subject.role.contract} is {status}")


@check("IdentityService names the judge, its version, its contract and its criteria.")
async def says_who_it_is(subject: Subject) -> None:
    """Checks the identity."""
    answer = await identity(subject)
    require(KEBAB_CASE.fullmatch(answer.name) is not None, f"name {answer.name!r} is not in kebab case")
    require(
        SEMANTIC_VERSION.fullmatch(answer.version) is not None,
        f"version {answer.version!r} is not of the form 1.2.3",
    )
    require(answer.contract == subject.role.contract, f"contract is {answer.contract!r}")
    require(bool(answer.criteria), "no criteria are named")
    wrong = [one for one in answer.criteria if SNAKE_CASE.fullmatch(one) is None]
    require(not wrong, f"criteria {wrong} are not in lower snake case")
    missing = [one for one in subject.role.criteria if one not in answer.criteria]
    require(not missing, f"the contract's criteria {missing} are not named")


@check("Every criterion named in the identity gets exactly one well-formed verdict, in that order.")
async def judges_every_criterion(subject: Subject) -> None:
    """Checks an ordinary answer."""
    expected = (await identity(subject)).criteria
    assessment = await ask(subject, script(STEPS))
    require_sound(assessment, expected, len(STEPS))
    require(
        assessment.reading == Reading.READING_STEPS,
        f"the reading of a candidate with steps is {Reading.Name(assessment.reading)}",
    )


@check("Provenance names the judge as its identity does, and the model calls of a judge that makes any.")
async def says_where_verdicts_come_from(subject: Subject) -> None:
    """Checks the provenance."""
    answer = await identity(subject)
    provenance = (await ask(subject, script(STEPS))).provenance
    for field in ("name", "version", "contract"):
        seen, wanted = getattr(provenance, field), getattr(answer, field)
        require(seen == wanted, f"provenance.{field} is {seen!r}, the identity's is {wanted!r}")
    if "calls-models" in answer.capabilities:
        require(bool(provenance.completions), "provenance.completions is empty though the judge calls models")
        require(bool(provenance.prompts), "provenance.prompts is empty though the judge calls models")


@check("An empty candidate fails what needs steps and abstains from the rest, without a model call.")
async def defines_the_empty_candidate(subject: Subject) -> None:
    """Checks the result for candidates without content, in each of their forms."""
    expected = (await identity(subject)).criteria
    forms = [
        Candidate(id="none"),
        Candidate(id="blank", text=" \n\t"),
        Candidate(id="no-steps", script=Script()),
    ]
    for assessment in await asyncio.gather(*(ask(subject, candidate) for candidate in forms)):
        require_sound(assessment, expected, 0)
        for verdict in assessment.verdicts:
            fails = verdict.criterion in (criteria.NO_MISSING_STEPS, criteria.COMPLETES_GOAL)
            wanted = Outcome.OUTCOME_FAIL if fails else Outcome.OUTCOME_ABSTAIN
            require(
                verdict.outcome == wanted or verdict.criterion not in criteria.ABSEVAL,
                f"{verdict.criterion} of an empty candidate is {Outcome.Name(verdict.outcome)}, "
                f"not {Outcome.Name(wanted)}",
            )
        require(not assessment.provenance.completions, "a model was called for an empty candidate")


@check("A text without steps is judged as text and says so.")
async def judges_prose(subject: Subject) -> None:
    """Checks a candidate that does not parse into steps."""
    expected = (await identity(subject)).criteria
    prose = Candidate(id="prose", text="You just heat some water in a pot and pour it over a tea bag.")
    assessment = await ask(subject, prose)
    require_sound(assessment, expected, 0)
    require(
        assessment.reading == Reading.READING_TEXT,
        f"the reading of prose is {Reading.Name(assessment.reading)}",
    )


@check("Without constraints satisfies_constraints abstains as not applicable.")
async def does_not_invent_constraints(subject: Subject) -> None:
    """Checks a task that restricts nothing."""
    assessment = await ask(subject, script(STEPS), task=Task(goal="Make a cup of tea"))
    for verdict in assessment.verdicts:
        if verdict.criterion == criteria.SATISFIES_CONSTRAINTS:
            require(
                verdict.abstain_reason == AbstainReason.ABSTAIN_REASON_NOT_APPLICABLE,
                f"it is {Outcome.Name(verdict.outcome)} ({AbstainReason.Name(verdict.abstain_reason)})",
            )


@check("Long steps, other scripts than Latin and forty candidates in the pool have a well-formed result.")
async def bears_unusual_input(subject: Subject) -> None:
    """Checks sizes and languages at the edge of what is common."""
    expected = (await identity(subject)).criteria
    chinese = ("在锅里装满水。", "把水烧开。", "把茶包放进杯子。", "把热水倒在茶包上。")
    pool = [script([f"{step} ({n})" for step in STEPS]) for n in range(40)]
    for number, candidate in enumerate(pool):
        candidate.id = f"other-{number}"
    cases: list[tuple[Sequence[str], Sequence[Candidate]]] = [
        (chinese, ()),
        (["Stir the tea. " * 700, *STEPS], ()),
        (STEPS, pool),
    ]
    answers = await asyncio.gather(*(ask(subject, script(steps), pool=others) for steps, others in cases))
    for (steps, _), assessment in zip(cases, answers, strict=True):
        require_sound(assessment, expected, len(steps))


@check("A request without a goal is refused with INVALID_ARGUMENT, an ErrorInfo and the field's path.")
async def refuses_bad_requests(subject: Subject) -> None:
    """Checks the error of an invalid request."""
    try:
        await ask(subject, script(STEPS), task=Task())
    except grpc.aio.AioRpcError as error:
        decoded = from_rpc_error(error)
        require(decoded.code == grpc.StatusCode.INVALID_ARGUMENT, f"the code is {decoded.code.name}")
        require(
            decoded.reason == ErrorReason.ERROR_REASON_FIELD_INVALID,
            f"the ErrorInfo's reason is {ErrorReason.Name(decoded.reason)}",
        )
        fields = [violation.field for violation in decoded.violations]
        require("task.goal" in fields, f"the BadRequest names {fields}, not task.goal")
    else:
        raise RequirementError("the request was answered")


@check("Who wrote a candidate does not change its verdicts.")
async def is_blind_to_the_author(subject: Subject) -> None:
    """Checks that candidate.model has no influence."""
    outcomes = []
    for author in ("", "the-best-model-there-is"):
        candidate = script(STEPS)
        candidate.model = author
        outcomes.append([verdict.outcome for verdict in (await ask(subject, candidate)).verdicts])
    require(outcomes[0] == outcomes[1], f"outcomes {outcomes[0]} became {outcomes[1]} with another author")


@check("Twenty calls at once are all answered.")
async def answers_side_by_side(subject: Subject) -> None:
    """Checks concurrent calls."""
    candidates = [script([*STEPS, f"Drink cup number {n}."]) for n in range(20)]
    expected = (await identity(subject)).criteria
    for assessment in await asyncio.gather(*(ask(subject, candidate) for candidate in candidates)):
        require_sound(assessment, expected, len(STEPS) + 1)
