from __future__ import annotations

import asyncio
from typing import cast

import grpc

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.judge.roles import CRITIC
from gateway.evaluations.calls import call_judge
from gateway.evaluations.scope import EvaluationScope, Timeouts
from gateway.judges.call_gate import CallGate
from gateway.judges.identity import JudgeIdentity
from gateway.judges.registry import Judge
from gateway.settings import JudgeEntry


async def test_a_failure_is_noted_with_the_judge_that_it_is_of() -> None:
    channel = cast("grpc.aio.Channel", None)
    judge = Judge(
        CRITIC,
        "strict",
        "nowhere:1",
        default=True,
        channel=channel,
        gate=CallGate(1),
        identity=JudgeIdentity(channel, CRITIC.contract),
        entry=JudgeEntry(role="critic", name="strict", target="nowhere:1"),
    )

    async def never(timeout: float) -> None:
        await asyncio.sleep(timeout + 10)

    scope = EvaluationScope(Timeouts(1, 1, 1))
    answered = await call_judge(scope, judge, never, left=None, longest=0.01)
    assert scope.failures == [answered._replace(judge="critic 'strict'")]  # type: ignore[union-attr]
    assert scope.failures[0].reason == verdict_pb2.ABSTAIN_REASON_TIMED_OUT
