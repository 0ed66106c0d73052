"""Outcomes are written in groups and not lost while the store is unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_INTERNAL
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.database import StoreError
from dramaturg.judge.provenance import prompt_texts
from gateway.runs import store_calls
from gateway.runs.engine import orchestrator, outcomes
from gateway.runs.engine.outcomes import GROUP_SIZE, MAX_UNWRITTEN, OutcomeWriter, PromptTexts, UsageTracker
from gateway.runs.records import NewRun, SampleOutcome, SampleWork
from tests.support.engines import lines, runs_with, script_rows, scripts_spec


def outcome(index: int) -> SampleOutcome:
    return SampleOutcome(RunSample(index=index), (), Usage())


def test_the_text_of_a_prompt_is_added_to_the_first_sample_with_it() -> None:
    known = {"a1": "Judge.", "b2": "Write."}
    texts = PromptTexts(lambda digest: known.get(digest, ""))

    def sample(*digests: str) -> RunSample:
        made = RunSample()
        for digest in digests:
            assessment = made.scripts.candidates.add().assessments.add().assessment
            assessment.provenance.prompts.add(name="p", sha256=digest)
        texts.add(made)
        return made

    assert list(prompt_texts(sample("a1", "a1", "c3"))) == [("a1", "Judge.")]
    assert list(prompt_texts(sample("b2", "a1"))) == [("b2", "Write.")]
    known["c3"] = "Compare."
    assert list(prompt_texts(sample("c3"))) == [("c3", "Compare.")]


async def test_a_full_group_is_written_at_once_and_the_rest_when_it_is_waited_for() -> None:
    groups: list[int] = []

    async def write(outcomes: Sequence[SampleOutcome]) -> None:
        groups.append(len(outcomes))

    writer = OutcomeWriter(write)
    for index in range(GROUP_SIZE):
        await writer.put(outcome(index))
    async with asyncio.timeout(0.4):
        await writer.flush()
        await writer.put(outcome(99))
        await writer.flush()
    assert groups == [GROUP_SIZE, 1]


async def test_one_outcome_alone_is_written_soon() -> None:
    written = asyncio.Event()

    async def write(outcomes: Sequence[SampleOutcome]) -> None:
        written.set()

    await OutcomeWriter(write).put(outcome(0))
    async with asyncio.timeout(5):
        await written.wait()


async def test_put_waits_while_the_store_is_slow() -> None:
    slow = asyncio.Event()

    async def write(outcomes: Sequence[SampleOutcome]) -> None:
        await slow.wait()

    writer = OutcomeWriter(write)
    for index in range(MAX_UNWRITTEN - 1):
        await writer.put(outcome(index))
    more = asyncio.create_task(writer.put(outcome(999)))
    await asyncio.sleep(0.05)
    assert not more.done()
    slow.set()
    async with asyncio.timeout(5):
        await more
        await writer.flush()


async def test_an_error_of_the_write_reaches_the_waiters() -> None:
    async def write(outcomes: Sequence[SampleOutcome]) -> None:
        raise ZeroDivisionError

    writer = OutcomeWriter(write)
    await writer.put(outcome(0))
    with pytest.raises(ZeroDivisionError):
        await writer.flush()


async def test_a_store_that_cannot_be_used_for_a_while_costs_nothing(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_calls, "MAX_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(orchestrator, "_MAX_STORE_WAIT_SECONDS", 0.1)
    failures = {"finish": 4, "take": 3, "get": 5, "next_pending": 3}

    async with runs_with(sqlite_url, lease_renewal_seconds=0.2, poll_seconds=0.1) as runs:
        store: Any = runs.store

        def failing(name: str, method: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if failures[name] > 0:
                    failures[name] -= 1
                    raise StoreError("the disk is full")
                return method(*args, **kwargs)

            return call

        for table, name in (
            (store.attempts, "finish"),
            (store.samples, "take"),
            (store.runs, "get"),
            (store.samples, "next_pending"),
        ):
            monkeypatch.setattr(table, name, failing(name, getattr(table, name)))
        content = lines(script_rows(30))
        # Not submitted, which would ask the store too: it is found.
        store.runs.create(NewRun(id="r", tenant="", spec=scripts_spec(), content=content))
        async with asyncio.timeout(60):
            while True:
                if not any(failures.values()):
                    break
                await asyncio.sleep(0.05)
        monkeypatch.undo()
        run = await runs.ended("r")
    assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, 30)
    # Nothing was evaluated again for it.
    assert run.counts.usage.provider_call_count == 30 * 4


def test_a_result_that_cannot_be_flattened_fails_its_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(sample: RunSample) -> Any:
        raise KeyError("new")

    monkeypatch.setattr(outcomes, "flatten", broken)
    succeeded = SampleOutcome(
        RunSample(index=4, state=run_pb2.SAMPLE_STATE_SUCCEEDED), (), Usage(provider_call_count=2)
    )
    succeeded.sample.scripts.task.id = "t"
    kept = outcomes.flatten_outcome(succeeded)
    assert (kept.sample.index, kept.sample.state) == (4, run_pb2.SAMPLE_STATE_FAILED)
    assert kept.sample.WhichOneof("result") is None
    assert kept.sample.error.code == STATUS_CODE_INTERNAL
    # It was paid all the same.
    assert kept.usage.provider_call_count == 2


def test_a_sample_that_crashes_gateways_fails() -> None:
    work = SampleWork(index=1, line=2, sample_id="x", tags={"a": "b"}, request=b"", crashes=4)
    assert outcomes.crash_outcome(work) is None
    failed = outcomes.crash_outcome(replace(work, crashes=5))
    assert failed is not None
    assert failed.sample.state == run_pb2.SAMPLE_STATE_FAILED
    assert "5 crashes" in failed.sample.error.message
    assert dict(failed.sample.tags) == {"a": "b"}


@given(st.lists(st.sampled_from(["add", "write", "refresh"]), max_size=40))
def test_no_usage_is_omitted(steps: list[str]) -> None:
    tracker, spent, written, stored = UsageTracker(Usage()), 0, 0, 0
    for step in steps:
        if step == "add":
            tracker.add(Usage(provider_call_count=1))
            spent += 1
        elif step == "write" and written < spent:
            stored += 1
            written += 1
            tracker.written(1)
        else:
            mark = tracker.mark()
            tracker.refresh(Usage(provider_call_count=stored), mark)
            assert tracker.total.provider_call_count == spent
        assert tracker.total.provider_call_count >= spent
