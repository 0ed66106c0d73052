from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from dramaturg.service.auth.caller import current, on_behalf_of
from dramaturg.service.threads import (
    Checkpoint,
    IsStopped,
    StoppedError,
    TenantThreads,
    ThreadPool,
    until_cancelled,
    with_checkpoint,
)
from dramaturg.testing import until


@pytest.fixture
async def threads() -> AsyncIterator[TenantThreads]:
    made = TenantThreads(size=3, per_tenant=2)
    yield made
    made.close()


async def test_calls_of_all_tenants_take_no_more_than_the_threads(threads: TenantThreads) -> None:
    begun, end = threading.Semaphore(0), threading.Event()

    def block() -> None:
        begun.release()
        end.wait(30)

    calls = [asyncio.create_task(threads(tenant, block)) for tenant in "abcdefgh"]
    for _ in range(3):
        assert await asyncio.to_thread(begun.acquire, timeout=30)
    assert not await asyncio.to_thread(begun.acquire, timeout=0.1)
    end.set()
    await asyncio.gather(*calls)


async def test_a_tenant_does_not_hold_all_threads_even_when_it_cancels_its_calls(
    threads: TenantThreads,
) -> None:
    begun, end = threading.Semaphore(0), threading.Event()

    def block() -> None:
        begun.release()
        end.wait(30)

    calls = [asyncio.create_task(threads("a", block)) for _ in range(10)]
    for _ in range(2):
        assert await asyncio.to_thread(begun.acquire, timeout=30)
    assert await asyncio.wait_for(threads("b", lambda: "at once"), 30) == "at once"
    assert not begun.acquire(blocking=False)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    more = [asyncio.create_task(threads("a", block)) for _ in range(10)]
    assert await asyncio.wait_for(threads("b", lambda: "at once"), 30) == "at once"
    assert not begun.acquire(blocking=False)
    end.set()
    await asyncio.gather(*more)


async def test_a_computation_ends_with_its_caller() -> None:
    begun, ended = threading.Event(), threading.Event()

    def compute(is_stopped: IsStopped, step: float) -> None:
        begun.set()
        for _ in range(3000):
            if is_stopped():
                ended.set()
                raise StoppedError
            ended.wait(step)

    call = asyncio.create_task(until_cancelled(asyncio.to_thread, compute, 0.01))
    assert await asyncio.to_thread(begun.wait, 30)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert await asyncio.to_thread(ended.wait, 10)


async def test_a_computation_ends_at_its_next_checkpoint_and_then_the_next_begins() -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(checkpoint: Checkpoint) -> None:
        begun.set()
        try:
            while True:
                checkpoint()
        except StoppedError:
            ended.set()
            raise

    with closing(ThreadPool(1)) as thread:
        first = asyncio.create_task(with_checkpoint(thread, endless))
        assert await asyncio.to_thread(begun.wait, 10)
        second = asyncio.create_task(with_checkpoint(thread, lambda checkpoint: ended.is_set()))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await second is True
        with pytest.raises(ValueError, match="invalid literal"):
            await with_checkpoint(thread, lambda checkpoint: int("x"))


async def test_a_share_ends_with_its_last_call(threads: TenantThreads) -> None:
    assert await asyncio.gather(*(threads("a", int, number) for number in range(20))) == list(range(20))
    with pytest.raises(ValueError, match="invalid literal"):
        await threads("a", int, "x")
    call = asyncio.create_task(threads("a", threading.Event().wait, 0.2))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    # The thread is held until the call returns.
    await until(lambda: not threads._turns._shares)
    assert not threads._turns._calls


async def test_a_call_has_the_context_of_its_caller(threads: TenantThreads) -> None:
    with on_behalf_of("team-a"):
        assert (await threads("team-a", current)).tenant == "team-a"
