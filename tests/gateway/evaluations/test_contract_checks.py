"""Judges that break their contract repeatedly, as callers of a gateway see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Finding, Verdict
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JudgeHealth
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.client import DramaturgClient
from gateway.evaluations.contract_checks import TASK
from tests.support.gateway import (
    Fake,
    agents,
    all_pass,
    evaluate_result,
    gateway_client,
    scripts_request,
    until_read,
)

RULES_BROKEN = {
    "a verdict is missing or invalid",
    "a verdict contradicts itself or another one",
    "it has values that the contract does not permit",
}
"""What others than the tenant concerned read: no words of requests and answers."""
RULES = {"quarantine_breaches": 3, "quarantine_check_seconds": 0.05}


class Patient:
    """A critic that breaks its contract until it is cured."""

    def __init__(self, breach: Callable[[Assessment], None]) -> None:
        self.cured = False
        self.goals: list[str] = []
        self._breach = breach

    async def judge(self, request: Any) -> Assessment:
        self.goals.append(request.task.goal)
        answer = all_pass("critic")
        if not self.cured:
            self._breach(answer)
        return answer


def contradict(answer: Assessment) -> None:
    for verdict in answer.verdicts:
        verdict.findings.append(Finding(description="A fault."))


def overstate(answer: Assessment) -> None:
    for verdict in answer.verdicts:
        verdict.score = 7


def leave_out(answer: Assessment) -> None:
    del answer.verdicts[1:]


def claim(answer: Assessment) -> None:
    answer.provenance.completions[0].usage.cost_usd = -5


async def health(client: DramaturgClient) -> JudgeHealth.ValueType:
    return (await client.list_judges("critic"))[0].health


def verdicts(result: ScriptsResult, role: str) -> list[Verdict]:
    assessments = result.candidates[0].assessments
    return next(list(one.assessment.verdicts) for one in assessments if one.role == role)


@pytest.mark.parametrize("breach", [contradict, overstate, leave_out, claim])
async def test_a_judge_that_breaks_its_contract_is_excluded_until_a_check_succeeds(
    breach: Callable[[Assessment], None],
) -> None:
    critic = Patient(breach)
    async with gateway_client(*agents(Fake("critic", critic.judge)), **RULES) as client:
        for _ in range(3):
            assert await health(client) == JudgeHealth.JUDGE_HEALTH_SERVING
            await evaluate_result(client, scripts_request(1))
        listed = (await client.list_judges("critic"))[0]
        assert listed.health == JudgeHealth.JUDGE_HEALTH_QUARANTINED
        assert listed.error.startswith("3 of its last 3 answers broke the contract, the last one: ")
        assert listed.error.rpartition(": ")[2] in RULES_BROKEN
        result = await evaluate_result(client, scripts_request(1))
        assert critic.goals.count("Make tea") == 3
        for verdict in verdicts(result, "critic"):
            assert verdict.abstain_reason == verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE
            assert "is in quarantine: 3 of its last 3 answers broke the contract" in verdict.rationale
        assert {one.outcome for one in verdicts(result, "execute")} == {verdict_pb2.OUTCOME_PASS}
        # A check that fails keeps it out.
        await until_read(lambda: asked(critic), True)
        assert await health(client) == JudgeHealth.JUDGE_HEALTH_QUARANTINED
        critic.cured = True
        await until_read(lambda: health(client), JudgeHealth.JUDGE_HEALTH_SERVING)
        result = await evaluate_result(client, scripts_request(1))
    assert {one.outcome for one in verdicts(result, "critic")} == {verdict_pb2.OUTCOME_PASS}


async def asked(critic: Patient) -> bool:
    return TASK.goal in critic.goals


async def test_failures_and_abstentions_are_no_breach_of_the_contract() -> None:
    async def judge(request: Any) -> Assessment:
        answer = all_pass("critic")
        for verdict in answer.verdicts:
            verdict.outcome = verdict_pb2.OUTCOME_ABSTAIN
            verdict.abstain_reason = verdict_pb2.ABSTAIN_REASON_UNPARSABLE
        return answer

    async def fail(request: Any) -> Assessment:
        raise RuntimeError("broken")

    fakes = agents(Fake("critic", judge), Fake("execute", fail))
    async with gateway_client(*fakes, **RULES) as client:
        for _ in range(6):
            await evaluate_result(client, scripts_request(1))
        assert {judge.health for judge in await client.list_judges()} == {JudgeHealth.JUDGE_HEALTH_SERVING}
