"""Servers in a thread. They run in processes of their own, since gRPC has one event loop a process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dramaturg.testing import in_thread, until

TWICE = """
import grpc
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.testing import FakeJudge, in_thread, serve

request = JudgeRequest(task={"goal": "Make tea"}, candidates=[{"id": "a", "text": "Boil water."}])
for number in range(2):
    judge = FakeJudge()
    with in_thread(serve(judge.contract())) as server, grpc.insecure_channel(server.target) as channel:
        (response,) = JudgeServiceStub(channel).Judge(request)
    assert response.candidate_id == "a"
    assert judge.requests == [request]
"""


def test_servers_in_threads_follow_each_other() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@asynccontextmanager
async def managed(events: list[str], *, fails: str = "") -> AsyncIterator[str]:
    if fails == "start":
        raise OSError("cannot start")
    events.append("started")
    try:
        yield "value"
    finally:
        events.append("stopped")
        if fails == "stop":
            raise OSError("cannot stop")


def test_it_stops_when_the_test_ends_or_fails() -> None:
    events: list[str] = []
    with in_thread(managed(events)) as value:
        assert value == "value"
        assert events == ["started"]
    assert events == ["started", "stopped"]
    with pytest.raises(ZeroDivisionError), in_thread(managed(events)):
        raise ZeroDivisionError
    assert events == ["started", "stopped"] * 2


@pytest.mark.parametrize("fails", ["start", "stop"])
def test_what_goes_wrong_in_the_thread_is_raised(fails: str) -> None:
    with pytest.raises(OSError, match=f"cannot {fails}"), in_thread(managed([], fails=fails)):
        pass


async def test_until_waits_for_a_condition_and_no_longer_than_told() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, event.set)
    await until(event.is_set)
    with pytest.raises(TimeoutError):
        await until(lambda: False, seconds=0.01)
