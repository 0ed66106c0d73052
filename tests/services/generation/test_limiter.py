"""How many calls are admitted at once: order, cancellation, and what the limit learns."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generation.limiter import AdaptiveLimiter, ConcurrencyBounds, Outcome


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_calls_go_in_the_order_they_came() -> None:
    limiter = AdaptiveLimiter(ConcurrencyBounds(start=1, maximum=1))
    order: list[int] = []

    async def call(number: int) -> None:
        await limiter.acquire()
        order.append(number)
        limiter.release(Outcome.OTHER)

    await asyncio.gather(*map(call, range(20)))
    assert order == list(range(20))


async def test_nobody_goes_past_those_who_wait() -> None:
    limiter = AdaptiveLimiter(ConcurrencyBounds(start=1, maximum=1))
    assert limiter.try_acquire()
    assert not limiter.try_acquire()
    first = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    limiter.release(Outcome.OTHER)
    assert not limiter.try_acquire()
    await first
    limiter.release(Outcome.OTHER)
    assert limiter.try_acquire()


@settings(deadline=None)
@given(st.lists(st.sampled_from(["ask", "end", "cancel_waiting", "cancel_admitted", "tick"]), max_size=60))
def test_no_slot_is_ever_lost(actions: list[str]) -> None:
    async def scenario() -> None:
        limiter = AdaptiveLimiter(ConcurrencyBounds(start=2, maximum=2))
        tasks: deque[asyncio.Task[None]] = deque()
        leave = asyncio.Event()

        async def call() -> None:
            await limiter.acquire()
            try:
                await leave.wait()
            finally:
                limiter.release(Outcome.OTHER)

        for action in actions:
            if action == "ask":
                tasks.append(asyncio.create_task(call()))
            elif action == "tick":
                await asyncio.sleep(0)
            elif action == "end":
                leave.set()
                await asyncio.sleep(0)
                leave.clear()
            elif tasks:
                (tasks.pop() if action == "cancel_waiting" else tasks.popleft()).cancel()
            assert 0 <= limiter.in_flight <= 2
        leave.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)
        assert limiter.in_flight == limiter.waiting == 0
        await asyncio.wait_for(limiter.acquire(), 1)

    asyncio.run(scenario())


def simulate(capacity: int, *, start: int, until: float) -> list[tuple[float, int]]:
    """Plays calls of a second each against a provider that refuses, at once, all above ``capacity``.

    Returns the time in seconds and the limit after each call.
    """

    async def play() -> list[tuple[float, int]]:
        clock = Clock()
        limiter = AdaptiveLimiter(ConcurrencyBounds(start=start, maximum=1000, cooldown=5.0), clock)
        ends: list[tuple[float, int, Outcome]] = []
        order, limits = count(), []
        while clock.now < until:
            while limiter.in_flight >= limiter.limit:
                clock.now, _, outcome = heapq.heappop(ends)
                limiter.release(outcome)
                limits.append((clock.now, limiter.limit))
            await limiter.acquire()
            accepted = limiter.in_flight <= capacity
            outcome = Outcome.ANSWERED if accepted else Outcome.RATE_LIMITED
            heapq.heappush(ends, (clock.now + (1.0 if accepted else 0.05), next(order), outcome))
        return limits

    return asyncio.run(play())


@pytest.mark.parametrize(("capacity", "start"), [(5, 1), (40, 10), (40, 200), (300, 20)])
def test_the_limit_finds_what_the_provider_bears_and_stays_there(capacity: int, start: int) -> None:
    settled = [limit for now, limit in simulate(capacity, start=start, until=150) if now > 50]
    mean = sum(settled) / len(settled)
    assert 0.6 * capacity <= mean <= 1.15 * capacity
    assert max(settled) <= 1.3 * capacity + 1
    assert min(settled) >= 0.45 * capacity - 1


async def drive(limiter: AdaptiveLimiter, together: int, rounds: int) -> None:
    for _ in range(rounds):
        for _ in range(together):
            await limiter.acquire()
        for _ in range(together):
            limiter.release(Outcome.ANSWERED)


async def test_the_start_doubles_with_every_full_round() -> None:
    limiter = AdaptiveLimiter(ConcurrencyBounds(start=4, maximum=100))
    limits = []
    for _ in range(6):
        await drive(limiter, limiter.limit, 1)
        limits.append(limiter.limit)
    assert limits == [8, 16, 32, 64, 100, 100]


async def test_rounds_that_leave_the_limit_unused_do_not_raise_it() -> None:
    limiter = AdaptiveLimiter(ConcurrencyBounds(start=10))
    await drive(limiter, 7, 50)
    assert limiter.limit == 10
    await drive(limiter, 10, 2)
    assert limiter.limit > 10


async def test_a_burst_of_rate_limits_counts_once_and_growth_waits() -> None:
    clock = Clock()
    limiter = AdaptiveLimiter(ConcurrencyBounds(start=10, decrease=0.5, cooldown=10.0), clock)
    for _ in range(10):
        await limiter.acquire()
    for _ in range(10):
        limiter.release(Outcome.RATE_LIMITED)
    assert limiter.limit == 5
    await drive(limiter, 5, 10)
    assert limiter.limit == 5
    clock.now = 10.0
    await drive(limiter, 5, 2)
    assert limiter.limit in {6, 7}


async def test_the_limit_never_leaves_its_bounds() -> None:
    clock = Clock()
    limiter = AdaptiveLimiter(ConcurrencyBounds(minimum=3, start=4, maximum=5, cooldown=0.0), clock)
    for _ in range(10):
        clock.now += 1
        await limiter.acquire()
        limiter.release(Outcome.RATE_LIMITED)
    assert limiter.limit == 3
    for _ in range(10):
        await drive(limiter, limiter.limit, 1)
    assert limiter.limit == 5
