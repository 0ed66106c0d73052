"""How many calls are admitted at once: order, cancellation, and what the limit learns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.generation.limits.limiter import Admission, CallLimiter, Outcome
from services.generation.limits.rates import Rates
from services.generation.limits.window import WindowBounds


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_calls_go_in_the_order_they_came() -> None:
    limiter = CallLimiter(WindowBounds(start=1, maximum=1))
    order: list[int] = []

    async def call(number: int) -> None:
        admission = await limiter.acquire()
        order.append(number)
        limiter.release(admission, Outcome.OTHER)

    await asyncio.gather(*map(call, range(20)))
    assert order == list(range(20))


async def test_nobody_goes_past_those_who_wait() -> None:
    limiter = CallLimiter(WindowBounds(start=1, maximum=1))
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
    limiter = CallLimiter(WindowBounds(start=1, maximum=1))
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
    limiter = CallLimiter(WindowBounds(1, 1, 1))
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
        self.limiter = CallLimiter(WindowBounds(self.SLOTS, self.SLOTS, self.SLOTS))
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


async def test_a_call_that_is_not_refused_for_a_while_makes_room_for_others() -> None:
    limiter = CallLimiter(WindowBounds(start=2))
    held = [await limiter.acquire() for _ in range(2)]
    waiting = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    limiter.release(held.pop(), Outcome.ANSWERED)
    assert await waiting


async def test_refusals_close_a_model_for_a_pause_and_say_so() -> None:
    clock = Clock()
    limiter = CallLimiter(clock=clock)
    limiter.release(await limiter.acquire("m"), Outcome.ANSWERED)
    while not limiter.delay("m"):
        limiter.release(await limiter.acquire("m"), Outcome.RATE_LIMITED)
        clock.now += 0.1
    assert limiter.try_acquire("m") is None
    assert limiter.try_acquire("other") is not None
    (status, _) = limiter.status()
    assert status.sentence("p").startswith("rate-limited by p, next in ")
    clock.now += limiter.delay("m")
    assert limiter.try_acquire("m") is not None


async def test_models_together_have_at_most_the_maximum_at_once() -> None:
    limiter = CallLimiter(WindowBounds(maximum=10))
    admissions = [await limiter.acquire("a") for _ in range(8)] + [
        await limiter.acquire("b") for _ in range(2)
    ]
    assert limiter.try_acquire("b") is None
    assert (limiter.in_flight, limiter.limit) == (10, 10)
    limiter.release(admissions[0], Outcome.ANSWERED)
    assert limiter.try_acquire("b") is not None


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
    limiter = CallLimiter(WindowBounds(minimum=6, start=8, maximum=9))
    admissions = [await limiter.acquire() for _ in range(8)]
    for admission in admissions:
        limiter.release(admission, Outcome.RATE_LIMITED)
    assert limiter.limit == 6
    limiter = CallLimiter(WindowBounds(minimum=3, start=4, maximum=5))
    await drive(limiter, 4, 10)
    assert limiter.limit == 5
