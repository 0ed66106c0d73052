"""What a run fails of is told while it fails, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import accumulate
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.service.errors import ServiceError
from gateway.evaluations import scope
from gateway.runs.engine import policy, sample_evaluation
from gateway.runs.engine.orchestrator import RunOrchestrator
from gateway.runs.engine.sample_evaluation import FailureLog
from gateway.runs.engine.worker import LocalRunExecution
from gateway.runs.records import Incident, RunRecord, SampleOutcome
from gateway.runs.store import runs as store_runs
from gateway.runs.store.attempts import Attempts
from tests.support.clocks import Clock
from tests.support.engines import Runs, runs_with, script_rows, scripts_spec
from tests.support.gateway import Fake, all_pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(sample_evaluation, "time", made)
    monkeypatch.setattr(scope, "time", made)
    return made


def test_what_lasts_is_told_every_few_seconds_with_what_was_not_told_yet(clock: Clock) -> None:
    log = FailureLog()
    assert log.report() is None
    log.failed("down", 8.0)
    log.failed("still down", 3.0)
    clock.now += 1.9
    assert log.report() is None
    clock.now += 0.1
    assert log.report() == Incident("still down", failures=2, lasted=2.0, wait=1.0)
    clock.now += 1.5
    log.failed("down again")
    assert log.report() is None
    clock.now += 0.5
    assert log.report() == Incident("down again", failures=1, lasted=4.0, wait=None)
    # There is nothing new.
    clock.now += 60
    assert log.report() is None


def test_who_does_not_answer_is_told_every_minute_until_an_attempt_ends(clock: Clock) -> None:
    log, slow, slower, execute = FailureLog(), ExitStack(), ExitStack(), ExitStack()
    with log.pending.call("synthesize 'quick'"):
        pass
    clock.now += 5
    slow.enter_context(log.pending.call("critic 'slow'"))
    clock.now += 10
    execute.enter_context(log.pending.call("execute 'slow'"))
    clock.now += 1
    slower.enter_context(log.pending.call("critic 'slow'"))
    clock.now += 43.9
    assert log.report() is None
    clock.now += 0.1
    said = "critic 'slow' has not answered 2 calls"
    assert log.report() == Incident(said, failures=0, lasted=60.0, wait=None)
    clock.now += 59
    assert log.report() is None
    slow.close()
    clock.now += 1
    again = log.report()
    assert again is not None
    assert again.description == "execute 'slow' has not answered 1 call"
    log.succeeded()
    clock.now += 59
    assert log.report() is None
    slower.close()
    execute.close()
    # Nobody is asked.
    clock.now += 60
    assert log.report() is None


def test_an_attempt_that_succeeds_ends_it(clock: Clock) -> None:
    log = FailureLog()
    log.failed("down", 8.0)
    clock.now += 60
    log.succeeded()
    assert log.report() is None
    log.failed("down once more", 1.0)
    assert log.report() is None
    clock.now += 3
    assert log.report() == Incident("down once more", failures=1, lasted=3.0, wait=-2.0)


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is tried again, and told, soon."""
    monkeypatch.setattr(sample_evaluation, "FIRST_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(sample_evaluation, "MAX_WAIT_SECONDS", 0.2)
    monkeypatch.setattr(sample_evaluation, "REPORT_AFTER_SECONDS", 0.1)
    monkeypatch.setattr(sample_evaluation, "REPORT_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(policy, "FIRST_DELAY_SECONDS", 0.5)


class Judge:
    """Fails until it is repaired; then it answers what it is let."""

    def __init__(self) -> None:
        self.repaired = False
        self.answers = asyncio.Semaphore(0)

    async def __call__(self, request: Any) -> Any:
        if not self.repaired:
            reason = error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED
            raise ServiceError(grpc.StatusCode.RESOURCE_EXHAUSTED, reason, "no model answers")
        await self.answers.acquire()
        return all_pass("critic")


async def troubled(runs: Runs, run_id: str, attempts: int) -> RunRecord:
    """Waits until a run is said to have failed so often."""
    return await runs.until(
        run_id, lambda run: run.incident is not None and run.incident.failed_attempt_count >= attempts
    )


@pytest.mark.usefixtures("_soon")
async def test_a_judge_that_fails_is_named_until_a_sample_succeeds(each_store_url: str) -> None:
    judge = Judge()
    async with runs_with(
        each_store_url, Fake("critic", judge, name="strict"), outage_timeout_seconds=60, poll_seconds=0.05
    ) as runs:
        run_id = await runs.create(scripts_spec(), script_rows(5))
        run = await troubled(runs, run_id, attempts=20)
        assert run.incident is not None
        assert run.counts.succeeded == 0
        assert "'strict' failed with RESOURCE_EXHAUSTED" in run.incident.description
        assert "no model answers" in run.incident.description
        assert run.incident.begin_time.ToDatetime() > run.start_time.replace(tzinfo=None)  # type: ignore[union-attr]
        judge.repaired = True
        judge.answers.release()
        run = await runs.until(run_id, lambda run: run.counts.succeeded == 1)
        assert run.incident is None
        for _ in range(4):
            judge.answers.release()
        assert (await runs.ended(run_id)).incident is None


@pytest.mark.usefixtures("_soon")
async def test_a_judge_that_does_not_answer_is_named_until_it_does(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_evaluation, "SILENCE_SECONDS", 0.3)
    judge = Judge()
    judge.repaired = True
    async with runs_with(sqlite_url, Fake("critic", judge, name="slow"), poll_seconds=0.05) as runs:
        run_id = await runs.create(scripts_spec(), script_rows(5))
        # On a busy machine another judge takes long enough to be named before it.
        wanted = "critic 'slow' has not answered "
        run = await runs.until(
            run_id, lambda run: run.incident is not None and run.incident.description.startswith(wanted)
        )
        assert run.incident is not None
        assert run.incident.failed_attempt_count == 0
        for _ in range(5):
            judge.answers.release()
        run = await runs.ended(run_id)
    assert (run.counts.succeeded, run.incident) == (5, None)


@pytest.mark.usefixtures("_soon")
async def test_samples_that_fail_for_good_are_told_too(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(request: Any) -> Any:
        reason = error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED
        raise ServiceError(grpc.StatusCode.UNAVAILABLE, reason, "nobody is there")

    async with runs_with(sqlite_url, Fake("critic", refuse), poll_seconds=0.05) as runs:
        kept = list[SampleOutcome]()
        finish = Attempts.finish

        def see(attempts: Attempts, run_id: str, attempt: int, outcomes: Sequence[SampleOutcome]) -> None:
            kept.extend(outcomes)
            finish(attempts, run_id, attempt, outcomes)

        monkeypatch.setattr(Attempts, "finish", see)
        run_id = await runs.create(scripts_spec(), script_rows(200))
        # The first ones are done, without what the judge should have said.
        run = await runs.until(run_id, lambda run: run.counts.succeeded > 20 and run.incident is not None)
        assert run.incident is not None
        assert "nobody is there" in run.incident.description
        assert all(outcome.degraded for outcome in kept)
        await runs.change(run_id, run_pb2.RUN_STATE_CANCELLED)
        assert runs.get(run_id).incident is None


@pytest.mark.usefixtures("_soon")
async def test_a_run_without_trouble_writes_nothing_of_it(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Incident] = []
    async with runs_with(sqlite_url, poll_seconds=0.05) as runs:
        monkeypatch.setattr(store_runs.Runs, "report_incident", lambda *given: told.append(given[-1]))
        await runs.ended(await runs.create(scripts_spec(), script_rows(50)))
    assert told == []


def keep_told(monkeypatch: pytest.MonkeyPatch) -> list[Incident]:
    """What is told to stores."""
    told: list[Incident] = []
    report = store_runs.Runs.report_incident

    def see(runs: store_runs.Runs, run_id: str, attempt: int, trouble: Incident) -> None:
        told.append(trouble)
        report(runs, run_id, attempt, trouble)

    monkeypatch.setattr(store_runs.Runs, "report_incident", see)
    return told


@pytest.mark.usefixtures("_soon")
async def test_batches_that_fail_are_told_with_the_pause(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, broken = LocalRunExecution.evaluate, [True]

    async def fail(part: LocalRunExecution, indices: Sequence[int]) -> None:
        if broken:
            raise NameError("name 'gone' is not defined")
        await evaluate(part, indices)

    monkeypatch.setattr(LocalRunExecution, "evaluate", fail)
    async with runs_with(sqlite_url, poll_seconds=0.05) as runs:
        told = keep_told(monkeypatch)
        run_id = await runs.create(scripts_spec(), script_rows(30))
        run = await troubled(runs, run_id, attempts=3)
        assert run.incident is not None
        assert run.incident.description == "its batches fail: NameError: name 'gone' is not defined"
        # What was told since then may be under way.
        assert run.incident.failed_attempt_count in accumulate(one.failures for one in told)
        assert 0 < (told[0].wait or 0) <= 0.5 < (told[-1].wait or 0)
        broken.clear()
        run = await runs.ended(run_id)
    assert (run.counts.succeeded, run.incident) == (30, None)


@pytest.mark.usefixtures("_soon")
async def test_an_orchestrator_that_fails_is_told(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_attempt, broken = RunOrchestrator.run, [True]

    async def fail(orchestrator: RunOrchestrator) -> None:
        if broken:
            raise ImportError("no module of that name")
        await run_attempt(orchestrator)

    monkeypatch.setattr(RunOrchestrator, "run", fail)
    async with runs_with(sqlite_url, lease_renewal_seconds=0.05) as runs:
        run_id = await runs.create(scripts_spec(), script_rows(3))
        run = await troubled(runs, run_id, attempts=2)
        assert run.incident is not None
        assert run.incident.description == "its orchestrator fails: ImportError: no module of that name"
        broken.clear()
        run = await runs.ended(run_id)
    assert (run.counts.succeeded, run.incident) == (3, None)
