"""A run whose batches or orchestrator fail is retried with growing delays, and fails in the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest

from dramaturg.api.evaluation.v1 import run_pb2
from gateway.runs.engine import policy
from gateway.runs.engine.orchestrator import RunOrchestrator
from gateway.runs.engine.policy import StallDetector
from gateway.runs.engine.worker import LocalRunExecution
from tests.support.clocks import Clock
from tests.support.engines import SECONDS, runs_with, script_rows, scripts_spec


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(policy, "time", made)
    return made


def test_pauses_double_to_the_longest(clock: Clock) -> None:
    stall, pauses = StallDetector(600, "its batches fail"), []
    for _ in range(7):
        stall.record(3, ["an error"])
        pauses.append(stall.delay())
        clock.now += pauses[-1]
        assert stall.delay() == 0
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_a_run_without_progress_is_stalled(clock: Clock) -> None:
    stall = StallDetector(600, "its batches fail")
    stall.record(3, [])
    clock.now += 1000
    assert stall.reason() == ""
    stall.record(3, ["the first", "the last"])
    clock.now += 599
    stall.record(3, [])
    assert stall.reason() == ""
    clock.now += 1
    assert stall.reason().startswith("no sample completed in 600 s because its batches fail: the last.")


def test_a_sample_that_is_done_ends_it(clock: Clock) -> None:
    stall = StallDetector(600, "its batches fail")
    stall.record(3, ["an error"])
    stall.record(3, ["an error"])
    clock.now += 700
    stall.record(4, [])
    assert (stall.delay(), stall.reason()) == (0, "")
    # Whatever failed since then counts from then on.
    stall.record(5, ["another"])
    assert (stall.delay(), stall.reason()) == (1, "")


def test_what_failed_can_be_forgotten(clock: Clock) -> None:
    stall = StallDetector(600, "its batches fail")
    stall.record(3, ["an error"])
    stall.reset()
    clock.now += 1000
    stall.record(3, [])
    assert (stall.delay(), stall.reason()) == (0, "")


async def test_batches_that_keep_failing_fail_the_run(
    each_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []

    async def fail(part: LocalRunExecution, indices: Sequence[int]) -> None:
        begun.append(time.monotonic())
        raise NameError("name 'gone' is not defined")

    monkeypatch.setattr(LocalRunExecution, "evaluate", fail)
    monkeypatch.setattr(policy, "FIRST_DELAY_SECONDS", 0.4)
    async with runs_with(each_store_url, stall_timeout_seconds=1, poll_seconds=0.05) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), script_rows(30)))
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert "because its batches fail: NameError: name 'gone' is not defined" in run.state_reason
    assert (run.counts.samples, run.counts.succeeded, run.counts.failed) == (30, 0, 0)
    # Pauses of 0.4, 0.8 s: three rounds at most, each of as many batches as the 30 samples make.
    assert 2 <= len(begun) <= 3 * 2


async def test_batches_that_fail_for_a_while_do_not(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = LocalRunExecution.evaluate
    failed: list[Sequence[int]] = []

    async def fail_first(part: LocalRunExecution, indices: Sequence[int]) -> None:
        if len(failed) < 3:
            failed.append(indices)
            raise ImportError("no module of that name")
        await evaluate(part, indices)

    monkeypatch.setattr(LocalRunExecution, "evaluate", fail_first)
    monkeypatch.setattr(policy, "FIRST_DELAY_SECONDS", 0.05)
    async with runs_with(sqlite_url, poll_seconds=0.05) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), script_rows(30)))
    assert (run.state, run.state_reason) == (run_pb2.RUN_STATE_SUCCEEDED, "")
    assert (run.counts.succeeded, run.counts.interrupted, len(failed)) == (30, 0, 3)


async def test_a_pause_is_no_part_of_a_stall(
    sqlite_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, note, forget = LocalRunExecution.evaluate, StallDetector.record, StallDetector.reset
    failed, noted, forgotten = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def fail_first(part: LocalRunExecution, indices: Sequence[int]) -> None:
        if not failed.is_set():
            failed.set()
            raise NameError("name 'gone' is not defined")
        await evaluate(part, indices)

    def see_note(stall: StallDetector, done: int, errors: Sequence[str]) -> None:
        note(stall, done, errors)
        if errors:
            noted.set()

    def see_forget(stall: StallDetector) -> None:
        forget(stall)
        if noted.is_set():
            forgotten.set()

    monkeypatch.setattr(LocalRunExecution, "evaluate", fail_first)
    monkeypatch.setattr(StallDetector, "record", see_note)
    monkeypatch.setattr(StallDetector, "reset", see_forget)
    async with asyncio.timeout(SECONDS), runs_with(sqlite_url, poll_seconds=0.05) as runs:
        run_id = await runs.create(scripts_spec(), script_rows(3))
        await noted.wait()
        # The clock stands still: nothing is tried again.
        await runs.change(run_id, run_pb2.RUN_STATE_PAUSED)
        await forgotten.wait()
        clock.now += 1000
        await runs.change(run_id, run_pb2.RUN_STATE_RUNNING)
        run = await runs.ended(run_id)
    assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, 3)


async def test_an_orchestrator_that_keeps_failing_fails_the_run(
    each_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []

    async def fail(orchestrator: RunOrchestrator) -> None:
        begun.append(time.monotonic())
        raise NameError("name 'gone' is not defined")

    monkeypatch.setattr(RunOrchestrator, "run", fail)
    monkeypatch.setattr(policy, "FIRST_DELAY_SECONDS", 0.5)
    async with runs_with(each_store_url, stall_timeout_seconds=3, lease_renewal_seconds=0.05) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), script_rows(3)))
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert "because its orchestrator fails: NameError: name 'gone' is not defined" in run.state_reason
    pauses = [after - before for before, after in pairwise(begun)]
    # 0.5, 1 and 2 s, and what it takes to see that one has failed.
    assert 2 <= len(pauses) <= 3
    assert all(pause >= 0.5 * 2**place for place, pause in enumerate(pauses))


async def test_an_orchestrator_that_fails_for_a_while_does_not(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_attempt = RunOrchestrator.run
    begun: list[RunOrchestrator] = []

    async def fail_first(orchestrator: RunOrchestrator) -> None:
        begun.append(orchestrator)
        if len(begun) <= 2:
            raise ImportError("no module of that name")
        await run_attempt(orchestrator)

    monkeypatch.setattr(RunOrchestrator, "run", fail_first)
    monkeypatch.setattr(policy, "FIRST_DELAY_SECONDS", 0.05)
    async with runs_with(sqlite_url, lease_renewal_seconds=0.05) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), script_rows(3)))
    assert (run.state, run.state_reason) == (run_pb2.RUN_STATE_SUCCEEDED, "")
    assert (run.counts.succeeded, len(begun)) == (3, 3)
