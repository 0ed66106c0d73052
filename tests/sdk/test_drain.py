"""The drain of a judge of the package for TypeScript.

``make test-typescript`` builds the package and runs this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.service.channel import open_channel
from tests.support.judges import TASK, candidate

pytestmark = pytest.mark.typescript

PROGRAM = Path(__file__).with_name("held_judge.mjs")
HOUR = "3600"


class HeldJudge:
    """The process of a judge whose calls end when its input does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.port = 0

    async def line(self) -> str:
        """The next line of its output."""
        assert self._process.stdout is not None
        return (await asyncio.wait_for(self._process.stdout.readline(), 30)).decode().strip()

    def release(self) -> None:
        """Lets all calls end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def stop(self) -> None:
        """Sends the signal, and waits until the judge has it."""
        self._process.terminate()
        assert await self.line() == "stopping"

    async def end(self) -> int:
        """The exit status."""
        return await asyncio.wait_for(self._process.wait(), 30)

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None


@asynccontextmanager
async def held_judge(drain_seconds: str) -> AsyncIterator[HeldJudge]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec("node", PROGRAM, drain_seconds, stdin=pipe, stdout=pipe)
    judge = HeldJudge(process)
    try:
        judge.port = int(await judge.line())
        yield judge
    finally:
        if not judge.ended:
            process.kill()
            await process.wait()


async def judged(channel: grpc.aio.Channel) -> Assessment:
    return await judge_one(channel, judge_request(TASK, [candidate("Heat it.")]), timeout=60)


@pytest.mark.parametrize("drain_seconds", [HOUR, "Infinity"])
async def test_a_call_in_progress_ends_within_the_drain_time(drain_seconds: str) -> None:
    """Connections without calls do not delay the end after it."""
    async with held_judge(drain_seconds) as judge:
        target = f"127.0.0.1:{judge.port}"
        async with open_channel(target) as channel, open_channel(target) as idle:
            await health_pb2_grpc.HealthStub(idle).Check(health_pb2.HealthCheckRequest(), timeout=10)
            _, silent = await asyncio.open_connection("127.0.0.1", judge.port)
            call = asyncio.ensure_future(judged(channel))
            assert await judge.line() == "judging"
            await judge.stop()
            async with grpc.aio.insecure_channel(target) as late:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await judged(late)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert not call.done()
            assert not judge.ended
            judge.release()
            assert [one.outcome for one in (await call).verdicts] == [verdict_pb2.OUTCOME_PASS]
            assert await judge.end() == 0
            silent.close()


@pytest.mark.parametrize("drain_seconds", ["0", "0.2"])
async def test_a_call_that_outlasts_the_drain_time_is_cut(drain_seconds: str) -> None:
    async with held_judge(drain_seconds) as judge, open_channel(f"127.0.0.1:{judge.port}") as channel:
        call = asyncio.ensure_future(judged(channel))
        assert await judge.line() == "judging"
        await judge.stop()
        with pytest.raises(grpc.aio.AioRpcError) as cut:
            await call
        assert cut.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await judge.line() == "aborted"
        assert await judge.end() == 0
