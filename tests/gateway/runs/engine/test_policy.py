"""Defaults of a run's policy, and the failures and abstentions that it allows.

Batches fill the slots of gateways, and no more of them are in flight than can be worked on.

How a run ends, and when its first samples pause it.

A run whose batches or orchestrator fail is retried with growing delays, and fails in the end.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_UNKNOWN
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_CALL_REJECTED,
    ABSTAIN_REASON_JUDGE_UNAVAILABLE,
    ABSTAIN_REASON_NOT_SUPPORTED,
    ABSTAIN_REASON_REFUSED,
)
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunLimits, RunPolicy, RunSample, SampleError
from dramaturg.api.evaluation.v1.scripts_pb2 import GoldAnswerFigures
from gateway.runs.engine import policy
from gateway.runs.engine.orchestrator import RunOrchestrator
from gateway.runs.engine.policy import (
    BATCHES_PER_GATEWAY,
    MAX_BATCH_SIZE,
    FailFast,
    StallDetector,
    batch_size,
    conclude,
    max_batches_in_flight,
    slots_of,
    words_of,
)
from gateway.runs.engine.worker import LocalRunExecution
from gateway.runs.records import Counts
from tests.support.clocks import Clock
from tests.support.engines import SECONDS, runs_with, script_rows, scripts_spec
from tests.support.runs import judged


def test_defaults() -> None:
    assert policy.concurrent_samples(RunLimits()) == 16
    assert policy.sample_attempts(RunPolicy()) == 3
    assert policy.sample_seconds(RunPolicy()) == 600
    short = RunPolicy()
    short.sample_timeout.FromSeconds(7)
    assert policy.sample_seconds(short) == 7


@pytest.mark.parametrize(
    ("allowed", "failed", "fails"),
    [
        (RunPolicy(), 100, False),
        (RunPolicy(max_failed_count=0), 0, False),
        (RunPolicy(max_failed_count=0), 1, True),
        (RunPolicy(max_failed_count=5), 5, False),
        (RunPolicy(max_failed_count=5), 6, True),
        (RunPolicy(max_failed_fraction=0.05), 5, False),
        (RunPolicy(max_failed_fraction=0.05), 6, True),
        (RunPolicy(max_failed_fraction=1), 100, False),
    ],
)
def test_failed_samples(allowed: RunPolicy, failed: int, fails: bool) -> None:
    assert bool(policy.too_many_failed(allowed, Counts(samples=100, failed=failed))) is fails


def test_abstentions_that_were_to_be_expected_do_not_count() -> None:
    counts = Counts(judgements=10, abstentions_by_reason={"NOT_SUPPORTED": 8, "TIMED_OUT": 1})
    assert not policy.too_many_abstained(RunPolicy(max_abstained_fraction=0.1), counts)
    assert policy.too_many_abstained(RunPolicy(max_abstained_fraction=0.05), counts)
    assert not policy.too_many_abstained(RunPolicy(), counts)
    assert not policy.too_many_abstained(RunPolicy(max_abstained_fraction=0), Counts())


@given(st.integers(1, 1024), st.integers(1, 64))
def test_shares_add_up_to_the_limit_or_are_one_each(slots: int, holders: int) -> None:
    shares = [slots_of(rank, holders, slots) for rank in range(holders)]
    assert sum(shares) == max(slots, holders)
    assert max(shares) - min(shares) <= 1


@given(st.integers(1, 1024), st.integers(1, 64), st.none() | st.floats(0.001, 10_000))
def test_the_batches_that_are_out_fill_the_slots_and_no_more_hold_them(
    slots: int, gateways: int, rate: float | None
) -> None:
    size = batch_size(rate, slots, gateways)
    window, share = max_batches_in_flight(slots, gateways), math.ceil(slots / gateways)
    assert 1 <= size <= max(MAX_BATCH_SIZE, share)
    # What one gateway works on fills its slots.
    assert BATCHES_PER_GATEWAY * size >= share
    # Every gateway that holds a batch has a slot, without more of them than the limit.
    assert min(gateways, slots) <= window
    assert slots >= gateways or window == slots


MAX_MISSING = "max_missing_gold_answer_fraction"
KEY = "the provider 'p' answered 401: no such key"


def counts(
    samples: int = 10, failed: int = 0, judgements: int = 0, missing: int = 0, **abstained: int
) -> Counts:
    return Counts(
        gold_answers=GoldAnswerFigures(
            sample_count=samples, missing_count=missing, missing_by_reason={"REFUSED": missing}
        ),
        samples=samples,
        succeeded=samples - failed,
        failed=failed,
        failures_by_reason={"INTERNAL": failed} if failed else {},
        judgements=judgements,
        abstentions=sum(abstained.values()),
        abstentions_by_reason=abstained,
    )


@pytest.mark.parametrize(
    ("policy", "done", "state", "outcome"),
    [
        ({}, counts(judgements=70), "SUCCEEDED", "JUDGED"),
        ({}, counts(judgements=70, REFUSED=7), "SUCCEEDED", "JUDGED"),
        ({}, counts(judgements=70, REFUSED=8), "PARTIAL", "LOW_COVERAGE"),
        ({}, counts(judgements=70, NOT_SUPPORTED=60), "SUCCEEDED", "JUDGED"),
        ({}, counts(judgements=70, NOT_SUPPORTED=60, REFUSED=2), "PARTIAL", "LOW_COVERAGE"),
        ({}, counts(judgements=70, NOT_SUPPORTED=70), "FAILED", "NOTHING_JUDGED"),
        ({}, counts(judgements=70, JUDGE_UNAVAILABLE=70), "FAILED", "NOTHING_JUDGED"),
        ({"min_coverage": 0}, counts(judgements=70, REFUSED=70), "FAILED", "NOTHING_JUDGED"),
        ({"min_coverage": 0}, counts(judgements=70, REFUSED=69), "SUCCEEDED", "JUDGED"),
        ({"min_coverage": 1}, counts(judgements=70, REFUSED=1), "PARTIAL", "LOW_COVERAGE"),
        ({}, counts(failed=10), "FAILED", "NOTHING_JUDGED"),
        ({}, counts(failed=1, judgements=63), "SUCCEEDED", "JUDGED"),
        ({}, counts(failed=2, judgements=56), "PARTIAL", "LOW_COVERAGE"),
        ({}, counts(failed=1, judgements=63, REFUSED=1), "PARTIAL", "LOW_COVERAGE"),
        ({"max_failed_count": 0}, counts(failed=2, judgements=56), "FAILED", "POLICY_EXCEEDED"),
        ({"max_abstained_fraction": 0.0}, counts(judgements=70, REFUSED=1), "FAILED", "POLICY_EXCEEDED"),
        ({}, counts(), "SUCCEEDED", "JUDGED"),
        ({}, counts(judgements=70, missing=1), "SUCCEEDED", "JUDGED"),
        ({}, counts(judgements=70, missing=2), "PARTIAL", "GOLD_ANSWERS_MISSING"),
        ({}, counts(judgements=70, missing=10, REFUSED=8), "PARTIAL", "LOW_COVERAGE"),
        ({MAX_MISSING: 0}, counts(judgements=70, missing=1), "PARTIAL", "GOLD_ANSWERS_MISSING"),
        ({MAX_MISSING: 1}, counts(judgements=70, missing=10), "SUCCEEDED", "JUDGED"),
    ],
)
def test_the_end_of_a_run(policy: dict[str, Any], done: Counts, state: str, outcome: str) -> None:
    found = conclude(RunPolicy(**policy), done, KEY)
    assert run_pb2.RunState.Name(found.state) == f"RUN_STATE_{state}"
    assert run_pb2.RunOutcome.Name(found.outcome) == f"RUN_OUTCOME_{outcome}"
    assert found.reason.endswith(KEY) is (outcome != "JUDGED")


def test_reasons_are_counted_the_commonest_first() -> None:
    found = conclude(RunPolicy(), counts(20, 2, 70, REFUSED=10, TIMED_OUT=30))
    assert found.reason == (
        "the coverage is 0.386; the policy asks for 0.9: 40 of 70 judgements abstained "
        "(TIMED_OUT 30, REFUSED 10); 2 of 20 samples failed (INTERNAL 2)"
    )


def failed(reason: int) -> RunSample:
    error = SampleError(
        code=STATUS_CODE_UNKNOWN, message=KEY, reason=error_reason_pb2.ErrorReason.ValueType(reason)
    )
    return RunSample(state=run_pb2.SAMPLE_STATE_FAILED, error=error)


WRONG_KEY = failed(error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED)
NO_MODEL = failed(error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN)
DEFECT = failed(error_reason_pb2.ERROR_REASON_INTERNAL)
REJECTED = judged(0, {"m": [ABSTAIN_REASON_NOT_SUPPORTED, ABSTAIN_REASON_CALL_REJECTED]}).sample
UNREACHABLE = judged(0, {"m": [ABSTAIN_REASON_JUDGE_UNAVAILABLE] * 2}).sample
HALF = judged(0, {"m": [ABSTAIN_REASON_JUDGE_UNAVAILABLE, True]}).sample
DECLINED = judged(0, {"m": [ABSTAIN_REASON_REFUSED]}).sample


@pytest.mark.parametrize(
    ("first", "paused_after"),
    [
        ([WRONG_KEY] * 4, 3),
        ([REJECTED] * 4, 3),
        ([UNREACHABLE] * 4, 3),
        ([WRONG_KEY, NO_MODEL, WRONG_KEY, WRONG_KEY, WRONG_KEY], None),
        ([WRONG_KEY, HALF, WRONG_KEY, WRONG_KEY, WRONG_KEY], None),
        ([DEFECT] * 4, None),
        ([DECLINED] * 4, None),
    ],
)
def test_first_samples_that_all_fail_for_one_permanent_reason(
    first: list[RunSample], paused_after: int | None
) -> None:
    watch = FailFast(RunPolicy(), Counts())
    said = [watch.record(sample) for sample in first]
    assert [place + 1 for place, reason in enumerate(said) if reason] == (
        [] if paused_after is None else [paused_after]
    )
    if paused_after is not None:
        assert words_of(first[0]) in said[paused_after - 1]


def test_the_number_of_first_samples_is_chosen() -> None:
    assert FailFast(RunPolicy(fail_fast_sample_count=1), Counts()).record(WRONG_KEY).endswith(KEY)
    never = FailFast(RunPolicy(fail_fast_sample_count=0), Counts())
    assert [never.record(WRONG_KEY) for _ in range(9)] == [""] * 9
    judged_before = FailFast(RunPolicy(), Counts(samples=9, succeeded=1, judgements=7))
    assert [judged_before.record(WRONG_KEY) for _ in range(9)] == [""] * 9


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
