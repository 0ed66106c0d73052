"""The critic of the examples, started as a user starts it."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.conformance import kit
from dramaturg.judge import roles
from dramaturg.service.channel import open_channel
from tests.support.judges import TASK, candidate

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "judges" / "terse_critic.py"


@pytest.fixture
async def target() -> AsyncIterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLE), "--port", str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(30):
            await channel.channel_ready()
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0, "it drains and ends well"


async def ask(target: str, one: Candidate) -> Assessment:
    question = roles.Question(TASK, one, None, (), JudgeOptions())
    async with open_channel(target) as channel:
        return await roles.CRITIC.ask(channel, question, 10)


async def test_a_critic_of_forty_lines_is_a_whole_server(target: str) -> None:
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
    outcomes = await kit.run(roles.CRITIC, target, timeout=20)
    assert [(one.check.name, one.failure) for one in outcomes if not one.passed] == []


def test_it_has_about_forty_lines_of_code() -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").split('"""', 2)[2].splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 45
