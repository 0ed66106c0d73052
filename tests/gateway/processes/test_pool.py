"""Tasks in processes: results, errors, limits, turns, and processes that die or are killed."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.service.errors import ServiceError, invalid
from dramaturg.testing import until
from gateway.processes import pool as pool_module
from gateway.processes.pool import ProcessPool, no_answer
from gateway.processes.process import CPU_SECONDS, ProcessLimits, TaskError
from tests.gateway.processes.tasks import (
    echo,
    fail,
    forever,
    identity,
    large,
    numbers,
    work_and_tell_limit,
)
from tests.support.processes import worker_processes

LIMITS = ProcessLimits(64 << 20)


@pytest.fixture(params=[0, 2], ids=["threads", "processes"])
async def either(request: pytest.FixtureRequest) -> AsyncIterator[ProcessPool]:
    made = ProcessPool(request.param, LIMITS)
    yield made
    made.close()


@pytest.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    made = ProcessPool(2, LIMITS)
    yield made
    made.close()


async def test_results_questions_and_errors_are_those_of_the_task(either: ProcessPool) -> None:
    async def answer(question: bytes) -> bytes:
        if question == b"?":
            raise invalid("message", "is wrong")
        return question.upper()

    assert [piece async for piece in either.stream("a", no_answer, numbers, 3)] == [b"0", b"1", b"2"]
    assert await either.result("a", answer, echo, b"x" * 100_000) == b"X" * 100_000
    with pytest.raises(ServiceError, match="field is wrong") as raised:
        await either.result("a", no_answer, fail, "service")
    assert raised.value.violations == invalid("field", "is wrong").violations
    with pytest.raises(ServiceError, match="message is wrong"):
        await either.result("a", answer, echo, b"?")
    assert await either.result("a", answer, echo, b"y") == b"Y"


async def test_a_process_is_kept_and_yields_to_others(pool: ProcessPool) -> None:
    first = await pool.result("a", no_answer, identity)
    pid, niceness, group, session = map(int, first.split())
    assert niceness == min(os.nice(0) + 10, 19)
    # Ctrl-C does not reach it. Linux compares the niceness of processes of one session alone.
    assert (group, session) == (pid, os.getsid(0))
    with pytest.raises(ServiceError):
        await pool.result("a", no_answer, fail, "service")
    assert await pool.result("b", no_answer, identity) == first


async def test_the_processor_time_of_earlier_tasks_does_not_count(pool: ProcessPool) -> None:
    limits = [int(await pool.result("a", no_answer, work_and_tell_limit, used)) for used in (1.2, 0)]
    assert limits[1] > limits[0] >= CPU_SECONDS


async def test_a_task_that_takes_too_much_processor_time_is_not_to_be_repeated() -> None:
    pool = ProcessPool(2, replace(LIMITS, cpu_seconds=1))
    with pytest.raises(ServiceError, match="it took more than 1 s of processor time") as raised:
        await pool.result("a", no_answer, work_and_tell_limit, 20)
    assert raised.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert raised.value.retry_after is None
    pool.close()


async def test_a_gateway_with_many_descriptors_has_processes(pool: ProcessPool) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"this user may open {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert await pool.result("a", no_answer, numbers, 2) == b"01"
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_task_that_needs_too_much_memory_is_refused(pool: ProcessPool) -> None:
    with pytest.raises(ServiceError, match="64 MiB of memory") as raised:
        await pool.result("a", no_answer, fail, "memory")
    assert (raised.value.code, raised.value.reason) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        reasons.ERROR_REASON_TOO_LARGE,
    )
    with pytest.raises(TaskError):
        await pool.result("a", no_answer, fail, "other")


async def test_the_death_of_a_process_is_unavailable_and_another_starts(pool: ProcessPool) -> None:
    pieces = pool.stream("a", no_answer, forever)
    await anext(pieces)
    (child,) = worker_processes()
    os.kill(child, signal.SIGKILL)
    with pytest.raises(ServiceError) as raised:
        await anext(pieces)
    assert raised.value.code is grpc.StatusCode.UNAVAILABLE
    assert raised.value.retry_after
    assert await pool.result("a", no_answer, numbers, 2) == b"01"


async def test_a_cancelled_task_is_killed(pool: ProcessPool) -> None:
    waiting = asyncio.create_task(pool.result("a", no_answer, forever))
    await until(lambda: len(worker_processes()) == 1, 20)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until(lambda: not worker_processes(), 20)
    async with aclosing(pool.stream("a", no_answer, large)) as pieces:
        await anext(pieces)
        assert len(worker_processes()) == 1
    await until(lambda: not worker_processes(), 20)
    assert await pool.result("a", no_answer, numbers, 1) == b"0"


async def test_a_tenant_has_one_process_and_leaves_one_to_others(pool: ProcessPool) -> None:
    async with aclosing(pool.stream("a", no_answer, forever)) as pieces:
        await anext(pieces)
        second = asyncio.create_task(pool.result("a", no_answer, numbers, 1))
        assert await pool.result("b", no_answer, numbers, 1) == b"0"
        assert not second.done()
    assert await second == b"0"


async def test_tenants_together_have_no_more_than_the_processes(pool: ProcessPool) -> None:
    async with (
        aclosing(pool.stream("a", no_answer, forever)) as one,
        aclosing(pool.stream("b", no_answer, forever)) as two,
    ):
        await anext(one)
        await anext(two)
        waiting = asyncio.create_task(pool.result("c", no_answer, numbers, 1))
        await until(lambda: pool._turns.has_waiting)
        assert len(worker_processes()) == 2
    assert await waiting == b"0"


async def test_a_slow_reader_keeps_no_process_that_others_wait_for(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "MAX_STALL_SECONDS", 0.1)
    monkeypatch.setattr(pool_module, "_CHECK_SECONDS", 0.05)
    slow = pool.stream("a", no_answer, large)
    await anext(slow)
    begun = time.monotonic()
    while time.monotonic() - begun < 0.3:  # noqa: ASYNC110 - nobody waits
        await asyncio.sleep(0.05)
    await anext(slow)
    assert await pool.result("a", no_answer, numbers, 1) == b"0"
    with pytest.raises(ServiceError, match="kept the call waiting") as raised:
        await anext(slow)
    assert raised.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_processes_end_with_their_pool() -> None:
    pool = ProcessPool(2, LIMITS)
    await pool.result("a", no_answer, numbers, 1)
    pieces = pool.stream("a", no_answer, forever)
    await anext(pieces)
    pool.close()
    with pytest.raises((ServiceError, RuntimeError)):
        await anext(pieces)
    await until(lambda: not worker_processes(), 20)
