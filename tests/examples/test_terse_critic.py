"""The critic of the examples, started as a user starts it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dramaturg import conformance
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge import roles
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.service.channel import open_channel
from tests.support.examples import lines_of_code, running_judge
from tests.support.judges import TASK, candidate


@pytest.fixture
async def target() -> AsyncIterator[str]:
    async with running_judge("terse_critic.py") as target:
        yield target


async def ask(target: str, one: Candidate) -> Assessment:
    async with open_channel(target) as channel:
        return await judge_one(channel, judge_request(TASK, [one]), timeout=10)


async def test_a_critic_of_a_few_lines_is_a_whole_server(target: str) -> None:
    repeated = await ask(target, candidate("Heat it.", "Wait.", "heat  it."))
    assert [verdict.outcome for verdict in repeated.verdicts] == [
        verdict_pb2.OUTCOME_ABSTAIN,
        verdict_pb2.OUTCOME_ABSTAIN,
        verdict_pb2.OUTCOME_FAIL,
    ]
    assert list(repeated.verdicts[2].findings[0].step_indices) == [0, 2]
    clean = await ask(target, candidate("Heat it.", "Wait."))
    assert clean.verdicts[2].outcome == verdict_pb2.OUTCOME_PASS
    prose = await ask(target, Candidate(id="a", text="Heat it and drink it."))
    assert {verdict.abstain_reason for verdict in prose.verdicts} == {
        verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED
    }
    outcomes = await conformance.run(roles.CRITIC, target, timeout=20)
    assert [(one.check.name, one.failure) for one in outcomes if one.broken] == []


def test_it_has_twenty_lines() -> None:
    assert lines_of_code("terse_critic.py") <= 20
