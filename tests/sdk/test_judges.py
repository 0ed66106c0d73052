"""The judges of the packages for other languages: each passes the conformance kit and stops by itself.

``make test-typescript`` and ``make test-go`` build the packages and run this module.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg import conformance
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.judge import roles
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.service.channel import open_channel
from tests.support.judges import TASK, candidate
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


class Language(NamedTuple):
    """The example of a judge in a language."""

    command: tuple[str, ...]
    """Starts it."""
    source: str
    longest: int
    """The most lines that are not blank."""


TYPESCRIPT = Language(
    ("node", "sdk/typescript/dist/examples/terse_critic.js"), "sdk/typescript/examples/terse_critic.ts", 30
)
GO = Language((".tools/go/bin/terse_critic",), "sdk/go/examples/terse_critic/main.go", 70)


@pytest.fixture(
    params=[
        pytest.param(TYPESCRIPT, marks=pytest.mark.typescript, id="typescript"),
        pytest.param(GO, marks=pytest.mark.go, id="go"),
    ]
)
def language(request: pytest.FixtureRequest) -> Language:
    found = request.param
    assert isinstance(found, Language)
    return found


@asynccontextmanager
async def terse_critic(language: Language) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """The address of the judge of the example, and its process."""
    port = free_port()
    program = await asyncio.create_subprocess_exec(
        *language.command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PORT": str(port)}
    )
    assert program.stdout is not None
    try:
        assert await asyncio.wait_for(program.stdout.readline(), 30) == f"serving on {port}\n".encode()
        yield f"localhost:{port}", program
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()


async def test_the_judge_passes_the_kit(language: Language) -> None:
    async with terse_critic(language) as (target, _):
        outcomes = await conformance.run(roles.CRITIC, target, timeout=20)
    assert outcomes
    assert [(one.check.name, one.failure) for one in outcomes if one.broken] == []


async def test_the_judge_drains(language: Language) -> None:
    command = [str(ROOT / one) if (ROOT / one).exists() else one for one in language.command]
    outcomes = await conformance.run(roles.CRITIC, command=command, timeout=20)
    assert [(one.check.name, one.failure) for one in outcomes if one.broken] == []
    assert [one.check.name for one in outcomes if one.skipped] == [
        "keeps-to-scales",
        "judges-each-unit",
        "takes-what-it-says",
    ]


async def test_the_judge_finds_repeated_steps(language: Language) -> None:
    async with terse_critic(language) as (target, _), open_channel(target) as channel:
        one = candidate("Heat it.", "Wait.", "heat  it.")
        found = await judge_one(channel, judge_request(TASK, [one]), timeout=10)
        prose = judge_request(TASK, [Candidate(id="a", text="Heat it and drink it.")])
        unread = await judge_one(channel, prose, timeout=10)
    outcomes = [verdict.outcome for verdict in found.verdicts]
    assert outcomes == [verdict_pb2.OUTCOME_ABSTAIN, verdict_pb2.OUTCOME_ABSTAIN, verdict_pb2.OUTCOME_FAIL]
    assert list(found.verdicts[2].findings[0].step_indices) == [0, 2]
    assert {one.abstain_reason for one in unread.verdicts} == {verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED}


async def test_every_limit_of_the_contract_is_checked(language: Language) -> None:
    wanted = judge_request(TASK, [candidate("Heat it.")])
    wanted.candidates[0].text = "x" * 200_001
    wanted.task.goal = " \n"
    for name in ("a", "a"):
        wanted.criteria.add(id=name)
    async with terse_critic(language) as (target, _), open_channel(target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async for _response in JudgeServiceStub(channel).Judge(wanted, timeout=10):
                pass
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "task.goal is missing or empty" in (refused.value.details() or "")
    assert "candidates[0].text has 200001 characters; at most 200000 are allowed" in (
        refused.value.details() or ""
    )


@pytest.mark.parametrize("client", ["none", "watch", "watch of an unknown service", "silent connection"])
async def test_a_stopped_judge_without_calls_ends_at_once(language: Language, client: str) -> None:
    async with AsyncExitStack() as stack:
        target, program = await stack.enter_async_context(terse_critic(language))
        if client == "silent connection":
            host, port = target.split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
        channel = await stack.enter_async_context(open_channel(target))
        health = health_pb2_grpc.HealthStub(channel)
        # The answer shows that the server has accepted the connection before it.
        await health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        if client.startswith("watch"):
            service = roles.CRITIC.contract if client == "watch" else "unknown"
            watch = health.Watch(health_pb2.HealthCheckRequest(service=service))
            await asyncio.wait_for(watch.read(), 10)
        program.terminate()
        # The drain timeout of both packages is 30 seconds.
        assert await asyncio.wait_for(program.wait(), 15) == 0


def test_the_judge_is_short(language: Language) -> None:
    text = (ROOT / language.source).read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) <= language.longest
