"""A hostile judge beside an honest one: verdicts, usage and memory of others are not touched."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN, OUTCOME_FAIL, OUTCOME_PASS, Assessment
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JUDGE_HEALTH_SERVING
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.client import DramaturgClient
from dramaturg.judge.protocols import MAX_ANSWER_BYTES
from dramaturg.judge.roles import CRITIC
from gateway.evaluations.judge_answers import MAX_LATENCY_SECONDS
from tests.hostile.judges import IDENTITIES, MISBEHAVIOURS, hostile_judge
from tests.hostile.test_requests import KEPT_SHARE, NOISE_MB, resident_mb
from tests.support.fleet import report
from tests.support.gateway import Fake, agents, evaluate_result, gateway_client, scripts_request

JUDGE_SECONDS = 2.0
SECONDS = 30.0
MOST_BYTES = 4 * MAX_ANSWER_BYTES
"""The largest result with an answer of a hostile judge."""


@asynccontextmanager
async def gateway(judge_seconds: float = JUDGE_SECONDS) -> AsyncIterator[DramaturgClient]:
    """A gateway with an honest judge of each role and hostile critics beside it."""
    async with AsyncExitStack() as stack:
        hostile = [Fake("critic", name="hostile", target=await stack.enter_async_context(hostile_judge()))]
        for index, introduce in enumerate(IDENTITIES.values()):
            target = await stack.enter_async_context(hostile_judge(introduce))
            hostile.append(Fake("critic", name=f"stranger-{index}", target=target))
        honest = Fake("critic", name="honest", default=True)
        judges = [*agents(honest), *hostile]
        yield await stack.enter_async_context(
            gateway_client(
                *judges,
                judge_timeout_seconds=judge_seconds,
                identity_timeout_seconds=0.5,
                # In quarantine a judge is not called: only the first misbehaviours would be tried.
                quarantine_breaches=0,
            )
        )


def asked(misbehaviour: str, *critics: str) -> Any:
    """A request with one candidate of three steps for these critics; none: the default."""
    request = scripts_request(1, judges=[JudgeSelection(role="critic", judge=name) for name in critics])
    request.task.id = misbehaviour
    return request


def assessments(result: ScriptsResult, *, hostile: bool) -> Sequence[Assessment]:
    return [
        one.assessment
        for candidate in result.candidates
        for one in candidate.assessments
        if (one.role == "critic" and one.judge != "honest") == hostile
    ]


def comparable(found: Sequence[Assessment]) -> list[bytes]:
    copies = []
    for one in found:
        copy = Assessment()
        copy.CopyFrom(one)
        copy.provenance.ClearField("latency")
        copies.append(copy.SerializeToString(deterministic=True))
    return copies


def total(usages: Sequence[Usage]) -> tuple[int, float]:
    tokens = sum(one.prompt_token_count + one.completion_token_count for one in usages)
    return tokens, math.fsum(one.cost_usd for one in usages)


def faults(assessment: Assessment, steps: int) -> list[str]:
    """What is unsound in the assessment of a hostile judge, as the gateway returns it."""
    found = []
    criteria = [verdict.criterion for verdict in assessment.verdicts]
    if criteria[: len(CRITIC.criteria)] != list(CRITIC.criteria) or len(set(criteria)) < len(criteria):
        found.append(f"criteria {criteria[:10]}")
    for verdict in assessment.verdicts:
        abstains = verdict.outcome == OUTCOME_ABSTAIN
        if verdict.outcome not in (OUTCOME_PASS, OUTCOME_FAIL, OUTCOME_ABSTAIN):
            found.append(f"outcome {verdict.outcome}")
        if abstains != bool(verdict.abstain_reason):
            found.append(f"outcome {verdict.outcome} with reason {verdict.abstain_reason}")
        if not (0 <= verdict.score <= 1 and 0 <= verdict.confidence <= 1):
            found.append(f"score {verdict.score}, confidence {verdict.confidence}")
        if any(index >= steps for one in verdict.findings for index in one.step_indices):
            found.append("a finding of a step that does not exist")
        if verdict.outcome == OUTCOME_PASS and verdict.findings:
            found.append("PASS with findings")
    timed: list[Any] = [assessment.provenance, *assessment.provenance.completions]
    if any(not 0 <= one.latency.ToNanoseconds() <= MAX_LATENCY_SECONDS * 10**9 for one in timed):
        found.append("a latency that is impossible")
    disclosed = (b"10.1.2.3", b"token of another")
    encoded = assessment.SerializeToString()
    return [*found, *(f"discloses {secret!r}" for secret in disclosed if secret in encoded)]


def check_shadow(shadowed: ScriptsResult, alone: ScriptsResult) -> None:
    """Checks that a hostile shadow leaves the result as it is without one."""
    (candidate,), (expected,) = shadowed.candidates, alone.candidates
    assert list(candidate.verdicts) == list(expected.verdicts)
    (shadow,) = candidate.shadows
    assert shadow.HasField("assessment") or shadow.miss
    assert not shadow.HasField("assessment") or not faults(shadow.assessment, steps=3)
    assert shadowed.ByteSize() < MOST_BYTES


async def check(client: DramaturgClient, misbehaviour: str, critic: str, expected: Sequence[bytes]) -> None:
    """Evaluates with a hostile judge beside an honest one, and with the honest ones alone meanwhile.

    A third evaluation has the hostile judge as a shadow of the honest one.
    """
    shadowing = asked(misbehaviour)
    shadowing.shadows.add(role="critic", judge=critic)
    shadowing.shadow_wait.FromMilliseconds(round(1000 * JUDGE_SECONDS) + 500)
    beside, alone, shadowed = await asyncio.gather(
        evaluate_result(client, asked(misbehaviour, "honest", critic), SECONDS),
        evaluate_result(client, asked(misbehaviour), SECONDS),
        evaluate_result(client, shadowing, SECONDS),
    )
    check_shadow(shadowed, alone)
    honest = assessments(beside, hostile=False)
    assert comparable(honest) == comparable(assessments(alone, hostile=False)) == list(expected)
    (hostile,) = assessments(beside, hostile=True)
    assert not faults(hostile, steps=3)
    assert hostile.provenance.registered_name == critic
    assert beside.ByteSize() < MOST_BYTES
    listed = total([one.usage for one in hostile.provenance.completions])
    without = total([alone.usage])
    assert 0 <= listed[0] <= 10**7
    assert 0 <= listed[1] <= 1000
    assert total([beside.usage]) == pytest.approx((without[0] + listed[0], without[1] + listed[1]))


async def check_all(client: DramaturgClient, expected: Sequence[bytes]) -> list[str]:
    """Tries every misbehaviour; returns the failures."""
    failed = []
    cases = [(name, "hostile") for name in MISBEHAVIOURS]
    cases += [(name, f"stranger-{index}") for index, name in enumerate(IDENTITIES)]
    for name, critic in cases:
        try:
            async with asyncio.timeout(SECONDS):
                await check(client, name, critic, expected)
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
    return failed


@pytest.mark.timeout(180)
async def test_no_misbehaviour_of_a_judge_reaches_another() -> None:
    async with gateway() as client:
        quiet = await evaluate_result(client, asked("quiet"), SECONDS)
        expected = comparable(assessments(quiet, hostile=False))
        before = resident_mb()
        assert not await check_all(client, expected)
        first = resident_mb() - before
        again = await evaluate_result(client, asked("quiet"), SECONDS)
        assert comparable(assessments(again, hostile=False)) == expected
        count = len(MISBEHAVIOURS) + len(IDENTITIES)
        assert (await client.check_judge("critic", "hostile")).health == JUDGE_HEALTH_SERVING
        report(misbehaviours=count, growth_mb=first)


async def test_a_stream_about_candidates_that_nobody_asked_for_ends_before_the_timeout_of_the_judge() -> None:
    async with gateway(judge_seconds=10 * SECONDS) as client, asyncio.timeout(SECONDS):
        request = asked("answers about another without end", "hostile")
        (candidate,) = (await evaluate_result(client, request, 10 * SECONDS)).candidates
    (hostile,) = [one.assessment for one in candidate.assessments if one.judge == "hostile"]
    assert {verdict.outcome for verdict in hostile.verdicts} == {OUTCOME_ABSTAIN}


@pytest.mark.endurance
@pytest.mark.timeout(600)
async def test_memory_does_not_grow_with_the_answers_of_a_hostile_judge() -> None:
    async with gateway() as client:
        quiet = await evaluate_result(client, asked("quiet"), SECONDS)
        expected = comparable(assessments(quiet, hostile=False))
        sizes = [resident_mb()]
        for _ in range(6):
            assert not await check_all(client, expected)
            sizes.append(resident_mb())
        report(memory_mb=sizes)
        assert sizes[6] - sizes[3] < max(0.0, sizes[3] - sizes[0]) * KEPT_SHARE + NOISE_MB


def test_there_are_thirty_misbehaviours() -> None:
    assert len(MISBEHAVIOURS) >= 30
