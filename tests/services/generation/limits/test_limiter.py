"""How many calls are admitted at once: order, cancellation, and what the limit learns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.generation.limits.concurrency import ConcurrencyBounds
from services.generation.limits.limiter import Admission, CallLimiter, Outcome, Rates


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


async def test_a_call_cancelled_in_the_tick_in_which_its_turn_comes_ends_in_cancellation() -> None:
    limiter = CallLimiter(ConcurrencyBounds(1, 1, 1))
    admission = await limiter.acquire()
    cancelled, other = (asyncio.create_task(limiter.acquire()) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    limiter.release(admission, Outcome.OTHER)
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    limiter.release(await other, Outcome.OTHER)
    assert limiter.in_flight == limiter.waiting == 0


class Waiters(RuleBasedStateMachine):
    """Calls are acquired, cancelled and released at any point, also several of them within one tick."""

    SLOTS = 2

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.limiter = CallLimiter(ConcurrencyBounds(self.SLOTS, self.SLOTS, self.SLOTS))
        self.actions: list[Callable[[], None]] = []
        """What is done within the next tick."""
        self.asked: list[asyncio.Task[Admission]] = []
        self.cancelled: set[asyncio.Task[Admission]] = set()
        self.held: list[Admission] = []

    @rule(first=st.booleans())
    def ask(self, first: bool) -> None:
        self.asked.append(self.runner.get_loop().create_task(self.limiter.acquire(first=first)))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.asked))
        self.actions.append(lambda: self.cancelled.add(task) if task.cancel() else None)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), outcome=st.sampled_from((Outcome.ANSWERED, Outcome.TIMED_OUT, Outcome.OTHER)))
    def release(self, data: st.DataObject, outcome: Outcome) -> None:
        admission = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.actions.append(lambda: self.limiter.release(admission, outcome))

    @rule(ticks=st.integers(1, 3))
    def tick(self, ticks: int) -> None:
        self.runner.run(self._tick(ticks))
        for task in [task for task in self.asked if task.done()]:
            self.asked.remove(task)
            assert task.cancelled() == (task in self.cancelled), "a cancelled call ends in cancellation alone"
            if not task.cancelled():
                self.held.append(task.result())

    async def _tick(self, ticks: int) -> None:
        while self.actions:
            self.actions.pop(0)()
        for _ in range(ticks):
            await asyncio.sleep(0)

    @invariant()
    def no_slot_is_given_twice(self) -> None:
        assert len(self.held) <= self.limiter.in_flight <= self.SLOTS
        assert len({admission.number for admission in self.held}) == len(self.held)

    def teardown(self) -> None:
        with self.runner:
            self.tick(5)
            assert self.limiter.in_flight == len(self.held)
            assert self.limiter.waiting == len(self.asked)
            assert not self.asked or len(self.held) == self.SLOTS, "a slot was lost"
            while self.held:
                self.actions.append(partial(self.limiter.release, self.held.pop(), Outcome.OTHER))
                self.tick(5)
            assert (self.asked, self.limiter.in_flight, self.limiter.waiting) == ([], 0, 0)


Waiters.TestCase.settings = settings(deadline=None, max_examples=200, stateful_step_count=30)
TestWaiters = Waiters.TestCase


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
    with pytest.raises(asyncio.CancelledError):
        await waiting
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


async def test_replicas_divide_what_is_configured() -> None:
    clock = Clock()
    limiter = CallLimiter(ConcurrencyBounds(start=16, maximum=16), lambda _: Rates(8), clock=clock)
    limiter.divide(4)
    assert limiter.limit == 4
    for _ in range(2):
        limiter.release(await limiter.acquire("m"), Outcome.ANSWERED)
    assert limiter.delay("m") > 0
    limiter.divide(1)
    assert (limiter.limit, limiter.delay("m")) == (16, 0)
    limiter.divide(100)
    assert limiter.limit == 1
    alone = CallLimiter(ConcurrencyBounds(4, 4, 4), is_shared=False)
    alone.divide(4)
    assert alone.limit == 4


async def test_calls_that_wait_go_when_a_replica_ends() -> None:
    limiter = CallLimiter(ConcurrencyBounds(start=2, maximum=2))
    limiter.divide(2)
    first = await limiter.acquire()
    waiting = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    limiter.divide(1)
    limiter.release(await waiting, Outcome.ANSWERED)
    limiter.release(first, Outcome.ANSWERED)
