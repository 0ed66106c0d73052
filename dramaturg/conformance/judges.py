"""What every judge of scripts must keep to: the agents' contracts and ScriptJudgeService."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Assessment, Outcome, Reading
from dramaturg.conformance.basics import (
    identity,
    require_identity,
    require_refused,
    require_serving,
    require_signed,
)
from dramaturg.conformance.kit import Subject, Suite, require
from dramaturg.judge import criteria
from dramaturg.judge.roles import JudgeRole, Question

TASK = Task(goal="Make a cup of tea without a kettle", constraints=["without a kettle"], topic="Food")
STEPS = (
    "Fill a pot with water.",
    "Heat the water on the stove until it boils.",
    "Put a tea bag into a cup.",
    "Pour the hot water over the tea bag.",
    "Take the tea bag out after three minutes.",
)

JUDGES = Suite()
"""The checks of a judge of scripts."""
check = JUDGES.check


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
    return await judge_role(subject).ask(subject.channel, question, subject.timeout)


def judge_role(subject: Subject) -> JudgeRole:
    """The role under test, which is one of a judge of scripts."""
    assert isinstance(subject.role, JudgeRole)
    return subject.role


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
    await require_serving(subject)


@check("IdentityService names the judge, its version, its contract and its criteria.")
async def says_who_it_is(subject: Subject) -> None:
    """Checks the identity."""
    answer = await identity(subject)
    require_identity(answer, subject)
    missing = [one for one in judge_role(subject).criteria if one not in answer.criteria]
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
    require_signed((await ask(subject, script(STEPS))).provenance, answer)


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
    await require_refused(ask(subject, script(STEPS), task=Task()), "task.goal")


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
