"""Samples are taken in small groups, each handed out once, and those that are not done are known.

Samples of runs whose judges have shadows.

The pace of samples beside calls of other tenants.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.judge.criteria import ABSEVAL
from gateway.quotas.turns import SHARE
from gateway.runs.engine.parts import MAX_WAIT_SECONDS, SamplePacer
from gateway.runs.engine.worker import SampleQueue
from gateway.runs.records import SampleWork
from gateway.settings import JudgeEntry
from tests.gateway.evaluations.test_shadows import fail, hang, outcomes, shadows
from tests.support.engines import Runs, judges_of, open_runs, script_rows, scripts_spec
from tests.support.gateway import Answer, Fake, agents


def work(index: int) -> SampleWork:
    return SampleWork(index=index, line=index + 1, sample_id="", tags={}, request=b"", crashes=0)


async def test_it_takes_no_more_than_asked_and_gives_each_once() -> None:
    groups: list[list[int]] = []

    async def take(indices: Sequence[int]) -> Sequence[SampleWork]:
        groups.append(list(indices))
        await asyncio.sleep(0)
        return [work(index) for index in indices if index != 3]

    queue = SampleQueue(range(7), take)
    given = await asyncio.gather(*(queue.next(2) for _ in range(9)))
    assert [one.index for one in given if one is not None] == [0, 1, 2, 4, 5, 6]
    assert given[6:] == [None, None, None]
    assert groups == [[0, 1], [2, 3], [4, 5], [6]]
    assert queue.left == {0, 1, 2, 4, 5, 6}


async def test_what_was_being_taken_when_it_was_cut_is_known() -> None:
    async def take(indices: Sequence[int]) -> Sequence[SampleWork]:
        await asyncio.Event().wait()
        return []

    queue = SampleQueue(range(5), take)
    task = asyncio.create_task(queue.next(3))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert queue.left == {0, 1, 2}


@asynccontextmanager
async def shadowed_runs(url: str, answer: Answer) -> AsyncIterator[Runs]:
    """An engine whose critic has a shadow."""
    async with judges_of([*agents(), Fake("critic", answer, name="shadow")]) as entries:
        entries[-1] = JudgeEntry.model_validate(
            {**entries[-1].model_dump(exclude_unset=True), "shadow": {"of": "fake"}}
        )
        async with open_runs(url, entries) as runs:
            yield runs


async def test_a_run_keeps_what_its_shadow_says_and_does_not_wait_in_a_slot(sqlite_url: str) -> None:
    together = 0
    most = 0
    released = asyncio.Event()

    async def slow(request: Any) -> Assessment:
        nonlocal together, most
        together += 1
        most = max(most, together)
        if together >= 4:
            released.set()
        async with asyncio.timeout(20):
            await released.wait()
        return await fail(request)

    async with shadowed_runs(sqlite_url, slow) as runs:
        spec = scripts_spec()
        spec.limits.max_concurrent_samples = 1
        run_id = await runs.create(spec, script_rows(4))
        run = await runs.ended(run_id)
        samples = runs.samples(run_id)
    # One sample at a time is judged; the shadow answers when it has all four.
    assert most == 4
    assert run.counts.succeeded == 4
    assert run.counts.coverage == 1
    for sample in samples:
        assert outcomes(sample.scripts) == {verdict_pb2.OUTCOME_PASS}
        (one,) = shadows(sample.scripts)
        assert {verdict.outcome for verdict in one.assessment.verdicts} == {verdict_pb2.OUTCOME_FAIL}
        assert len(sample.scripts.candidates[0].verdicts) == len(ABSEVAL)


async def test_a_run_that_is_cancelled_waits_for_no_shadow(sqlite_url: str) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def hanging(request: Any) -> Assessment:
        begun.set()
        try:
            return await hang(request)
        finally:
            gone.set()

    async with shadowed_runs(sqlite_url, hanging) as runs:
        run_id = await runs.create(scripts_spec(), script_rows(2))
        await begun.wait()
        await runs.change(run_id, run_pb2.RUN_STATE_CANCELLED)
        assert (await runs.ended(run_id)).state == run_pb2.RUN_STATE_CANCELLED
        async with asyncio.timeout(20):
            await gone.wait()


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
