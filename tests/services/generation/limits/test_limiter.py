"""How many calls are admitted at once: order, cancellation, and what the limit learns."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from services.generation.limits.concurrency import ConcurrencyBounds
from services.generation.limits.limiter import CallLimiter, Outcome, Rates


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_calls_go_in_the_order_they_came() -> None:
    limiter = CallLimiter(ConcurrencyBounds(start=1, maximum=1))
    order: list[int] = []

    async def call(number: int) -> None:
        admission = await limiter.acquire()
        order.append(number)
        limiter.release(admission, Outcome.OTHER)

    await asyncio.gather(*map(call, range(20)))
    assert order == list(range(20))


async def test_nobody_goes_past_those_who_wait() -> None:
    limiter = CallLimiter(ConcurrencyBounds(start=1, maximum=1))
    admission = limiter.try_acquire()
    assert admission is not None
    assert not limiter.try_acquire()
    first = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    limiter.release(admission, Outcome.OTHER)
    assert not limiter.try_acquire()
    limiter.release(await first, Outcome.OTHER)
    assert limiter.try_acquire()


async def test_a_call_that_was_refused_goes_before_those_that_wait() -> None:
    limiter = CallLimiter(ConcurrencyBounds(start=1, maximum=1))
    admission = await limiter.acquire()
    second = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    again = asyncio.create_task(limiter.acquire(first=True))
    await asyncio.sleep(0)
    limiter.release(admission, Outcome.OTHER)
    await asyncio.sleep(0)
    assert (again.done(), second.done()) == (True, False)
    limiter.release(await again, Outcome.OTHER)
    await second


@settings(deadline=None)
@given(st.lists(st.sampled_from(["ask", "end", "cancel_waiting", "cancel_admitted", "tick"]), max_size=60))
def test_no_slot_is_ever_lost(actions: list[str]) -> None:
    async def scenario() -> None:
        limiter = CallLimiter(ConcurrencyBounds(start=2, maximum=2))
        tasks: deque[asyncio.Task[None]] = deque()
        leave = asyncio.Event()

        async def call() -> None:
            admission = await limiter.acquire()
            try:
                await leave.wait()
            finally:
                limiter.release(admission, Outcome.OTHER)

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


async def drive(limiter: CallLimiter, at_once: int, rounds: int) -> None:
    """Makes calls that are all answered, with others waiting."""
    for _ in range(rounds):
        admissions = [await limiter.acquire() for _ in range(at_once)]
        waiting = asyncio.create_task(limiter.acquire())
        await asyncio.sleep(0)
        for admission in admissions:
            limiter.release(admission, Outcome.ANSWERED)
        limiter.release(await waiting, Outcome.OTHER)


async def widen(limiter: CallLimiter) -> None:
    """Has calls answered until many may be sent that are not known to be accepted."""
    for _ in range(8):
        at_once = min(8, limiter.limit)
        for admission in [await limiter.acquire() for _ in range(at_once)]:
            limiter.release(admission, Outcome.ANSWERED)


async def refuse_all_but(limiter: CallLimiter, served: int) -> None:
    """Sends as many calls as are allowed, of which some are served."""
    admissions = [await limiter.acquire() for _ in range(limiter.limit)]
    for admission in admissions[served:]:
        limiter.release(admission, Outcome.RATE_LIMITED)
    assert (limiter.limit, limiter.in_flight) == (served, served)
    for admission in admissions[:served]:
        limiter.release(admission, Outcome.ANSWERED)


async def test_few_calls_are_sent_before_any_is_accepted() -> None:
    clock = Clock()
    limiter = CallLimiter(ConcurrencyBounds(start=32), clock=clock)
    admissions = []
    while (admission := limiter.try_acquire()) is not None:
        admissions.append(admission)
    assert len(admissions) == 8
    limiter.release(admissions.pop(), Outcome.ANSWERED)
    assert limiter.try_acquire() is not None
    assert limiter.try_acquire() is not None
    assert limiter.try_acquire() is None
    clock.now = 10.0
    assert limiter.try_acquire() is not None, "calls that are not refused for a while are accepted"


async def test_calls_refused_together_leave_the_number_that_is_served() -> None:
    limiter = CallLimiter(ConcurrencyBounds(start=10))
    await widen(limiter)
    await refuse_all_but(limiter, 4)
    assert limiter.delay("") == 0
    for _ in range(3):
        limiter.release(await limiter.acquire(), Outcome.ANSWERED)
    assert limiter.limit == 4


async def test_a_learned_limit_is_probed_by_one_call_and_ever_less_often() -> None:
    limiter = CallLimiter(ConcurrencyBounds(start=10))
    await widen(limiter)
    await refuse_all_but(limiter, 4)
    await widen(limiter)
    probed = []
    for answered in range(0, 1200, 4):
        await drive(limiter, 4, 1)
        if limiter.limit > 4:
            probed.append(answered)
            assert limiter.limit == 5
            admissions = [await limiter.acquire() for _ in range(5)]
            limiter.release(admissions.pop(), Outcome.RATE_LIMITED)
            for admission in admissions:
                limiter.release(admission, Outcome.OTHER)
            assert limiter.limit == 4
    gaps = [later - sooner for sooner, later in pairwise(probed)]
    assert 5 <= len(probed) <= 10
    assert all(later >= 1.5 * sooner for sooner, later in pairwise(gaps[:5]))


async def test_a_probe_that_is_accepted_raises_the_limit_ever_faster() -> None:
    limiter = CallLimiter(ConcurrencyBounds(start=20))
    await widen(limiter)
    await refuse_all_but(limiter, 2)
    await widen(limiter)
    limits = []
    for _ in range(80):
        await drive(limiter, limiter.limit, 1)
        limits.append(limiter.limit)
    assert limits == sorted(limits)
    assert limits[-1] >= 20


async def test_refusals_of_calls_sent_alone_show_a_limit_of_the_rate() -> None:
    clock = Clock()
    limiter = CallLimiter(ConcurrencyBounds(start=20), clock=clock)
    await widen(limiter)
    for _ in range(2):
        limiter.release(await limiter.acquire(), Outcome.RATE_LIMITED)
        clock.now += 1.0
    assert limiter.delay("") == 0, "single refusals show nothing"
    for _ in range(3):
        admission = limiter.try_acquire()
        if admission is not None:
            limiter.release(admission, Outcome.RATE_LIMITED)
            clock.now += 0.5
    clock.now -= 0.5
    assert limiter.limit >= 20
    assert limiter.delay("") > 0
    assert limiter.try_acquire() is None
    (status,) = limiter.status()
    assert status.sentence("p").startswith("rate-limited by p, ")


async def test_refusals_at_random_lower_nothing() -> None:
    clock = Clock()
    limiter = CallLimiter(ConcurrencyBounds(start=20), clock=clock)
    await widen(limiter)
    for number in range(400):
        admission = limiter.try_acquire()
        assert admission is not None
        clock.now += 0.1
        limiter.release(admission, Outcome.RATE_LIMITED if number % 5 == 0 else Outcome.ANSWERED)
        clock.now += 0.5
    assert limiter.limit == 20
    assert limiter.delay("") == 0


async def test_a_call_that_hangs_while_others_are_answered_lowers_nothing() -> None:
    limiter = CallLimiter(ConcurrencyBounds(start=16, maximum=16))
    hanging = await limiter.acquire()
    await widen(limiter)
    limiter.release(hanging, Outcome.TIMED_OUT)
    assert limiter.limit == 16


async def test_more_calls_without_an_answer_than_with_one_lower_the_limit() -> None:
    limiter = CallLimiter(ConcurrencyBounds(start=16))
    await widen(limiter)
    admissions = [await limiter.acquire() for _ in range(16)]
    for admission in admissions[:6]:
        limiter.release(admission, Outcome.ANSWERED)
    for admission in admissions[6:]:
        limiter.release(admission, Outcome.TIMED_OUT)
    assert limiter.limit == 3


async def test_calls_without_an_answer_in_time_halve_the_limit_once() -> None:
    limiter = CallLimiter(ConcurrencyBounds(start=16))
    await widen(limiter)
    admissions = [await limiter.acquire() for _ in range(16)]
    for admission in admissions:
        limiter.release(admission, Outcome.TIMED_OUT)
    assert limiter.limit == 8


async def test_models_wait_for_their_own_rates_alone() -> None:
    limiter = CallLimiter(rates=lambda model: Rates(1 if model == "slow" else None))
    limiter.release(await limiter.acquire("slow"), Outcome.ANSWERED)
    waiting = asyncio.create_task(limiter.acquire("slow"))
    await asyncio.sleep(0)
    limiter.release(await limiter.acquire("fast"), Outcome.ANSWERED)
    assert not waiting.done()
    assert limiter.waiting == 1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert limiter.waiting == 0


async def test_the_limit_never_leaves_its_bounds() -> None:
    limiter = CallLimiter(ConcurrencyBounds(minimum=6, start=8, maximum=9))
    admissions = [await limiter.acquire() for _ in range(8)]
    for admission in admissions:
        limiter.release(admission, Outcome.RATE_LIMITED)
    assert limiter.limit == 6
    limiter = CallLimiter(ConcurrencyBounds(minimum=3, start=4, maximum=5))
    await drive(limiter, 4, 10)
    assert limiter.limit == 5
