from __future__ import annotations

import asyncio
from typing import cast

import grpc

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.judge.roles import CRITIC
from gateway.evaluations.calls import call_judge, noted_failures
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

    with noted_failures() as noted:
        answered = await call_judge(judge, never, left=None, longest=0.01)
    assert noted == [answered._replace(judge="critic 'strict'")]  # type: ignore[union-attr]
    assert noted[0].reason == verdict_pb2.ABSTAIN_REASON_TIMED_OUT
