"""Equal work at the same time is done once, whoever leaves."""

from __future__ import annotations

import asyncio

import pytest

from services.generation.calls import Deadline, DeadlinePassedError, Until
from services.generation.completions import SingleFlight


class Work:
    """Work that ends when it is told to, and counts how often it was begun."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = 0
        self.cancelled = 0
        self.end = asyncio.Event()
        self.deadline: Deadline = Until(None)
        self._error = error

    async def __call__(self, deadline: Deadline) -> str:
        self.begun += 1
        self.deadline = deadline
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self._error is not None:
            raise self._error
        return "done"


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_work_goes_on_for_the_others_when_the_first_is_cancelled() -> None:
    flights, work = SingleFlight[str](), Work()
    first, second = (asyncio.create_task(flights.join("k", Until(None), work)) for _ in range(2))
    await settle()
    first.cancel()
    await settle()
    work.end.set()
    assert await second == ("done", False)
    assert (work.begun, work.cancelled) == (1, 0)


async def test_the_work_is_cancelled_with_the_last_who_waits_and_begun_anew_for_the_next() -> None:
    flights, work = SingleFlight[str](), Work()
    tasks = [asyncio.create_task(flights.join("k", Until(None), work)) for _ in range(3)]
    await settle()
    for task in tasks:
        task.cancel()
    await settle()
    assert (work.begun, work.cancelled) == (1, 1)
    next_one = asyncio.create_task(flights.join("k", Until(None), work))
    await settle()
    work.end.set()
    assert await next_one == ("done", True)
    assert work.begun == 2


async def test_a_failure_is_told_to_all_who_wait_and_then_forgotten() -> None:
    flights, work = SingleFlight[str](), Work(ValueError("broken"))
    tasks = [asyncio.create_task(flights.join("k", Until(None), work)) for _ in range(3)]
    await settle()
    work.end.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["broken"] * 3
    assert work.begun == 1
    with pytest.raises(ValueError, match="broken"):
        await flights.join("k", Until(None), work)
    assert work.begun == 2


async def test_whoever_waits_for_work_that_is_cancelled_is_cancelled() -> None:
    flights, work = SingleFlight[str](), Work()
    waiting = asyncio.create_task(flights.join("k", Until(60), work))
    await settle()
    (running,) = asyncio.all_tasks() - {waiting, asyncio.current_task()}
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_short_deadline_ends_one_wait_and_not_the_work() -> None:
    flights, work = SingleFlight[str](), Work()
    short = asyncio.create_task(flights.join("k", Until(0.01), work))
    await settle()
    patient = asyncio.create_task(flights.join("k", Until(60), work))
    await settle()
    assert work.deadline.remaining() > 50
    with pytest.raises(DeadlinePassedError):
        await short
    work.end.set()
    assert await patient == ("done", False)
    assert work.begun == 1


async def test_a_deadline_that_passes_after_a_failure_raises_that_failure() -> None:
    flights = SingleFlight[str]()
    unwound = asyncio.Event()

    async def work(deadline: Deadline) -> str:
        deadline.failure = ValueError("refused")
        try:
            await asyncio.Event().wait()
        finally:
            await unwound.wait()
        return "done"

    with pytest.raises(ValueError, match="refused"):
        await flights.join("k", Until(0.01), work)
    unwound.set()


async def test_different_keys_are_different_work() -> None:
    flights, work = SingleFlight[str](), Work()
    work.end.set()
    assert await asyncio.gather(*(flights.join(key, Until(None), work) for key in "ab")) == [
        ("done", True),
        ("done", True),
    ]
