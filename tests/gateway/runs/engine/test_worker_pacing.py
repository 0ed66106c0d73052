"""The pace of samples beside calls of other tenants."""

from __future__ import annotations

import asyncio

import pytest

from gateway.quotas.gate import SHARE
from gateway.runs.engine.worker import MAX_WAIT_SECONDS, SamplePacer


class Loop:
    """An event loop of which a part of the time computes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.computed = self.slept = 0.0
        self.turns = 0
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.computed += seconds

    async def sleep(self, seconds: float) -> None:
        self.turns += 1
        self.now += seconds
        self.slept += seconds

    def pacer(self, *, others: bool) -> SamplePacer:
        return SamplePacer(lambda _: others, clock=lambda: self.now, computed=lambda: self.computed)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


async def test_a_sample_starts_in_a_turn_of_its_own(loop: Loop) -> None:
    pacer = loop.pacer(others=False)
    for _ in range(3):
        loop.work(1)
        await pacer.start("a")
    assert (loop.turns, loop.slept) == (3, 0)


async def test_beside_other_calls_the_loop_stays_idle_for_most_of_the_time(loop: Loop) -> None:
    pacer = loop.pacer(others=True)
    for _ in range(100):
        await pacer.start("a")
        loop.work(0.01)
    assert loop.computed / loop.now == pytest.approx(SHARE, rel=0.05)


async def test_a_loop_that_was_idle_delays_no_sample(loop: Loop) -> None:
    pacer = loop.pacer(others=True)
    loop.work(0.01)
    loop.now += 1
    await pacer.start("a")
    assert loop.slept == 0


async def test_samples_start_on_a_gateway_that_is_always_busy(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(seconds: float) -> None:
        await Loop.sleep(loop, seconds)
        loop.computed += seconds

    monkeypatch.setattr(asyncio, "sleep", busy)
    pacer = loop.pacer(others=True)
    loop.work(10)
    await pacer.start("a")
    assert loop.slept == pytest.approx(MAX_WAIT_SECONDS)


async def test_tenants_start_in_turns() -> None:
    pacer = SamplePacer(lambda _: False)
    started: list[str] = []

    async def start(tenant: str) -> None:
        await pacer.start(tenant)
        started.append(tenant)

    await asyncio.gather(*(start("a") for _ in range(5)), start("b"))
    assert started.index("b") <= 2
