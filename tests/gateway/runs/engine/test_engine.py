"""A run from its creation to its end, over real gRPC, on both databases."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from typing import Any

import grpc
import pytest
import sqlalchemy as sa

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunBudget, RunLimits, RunPolicy
from dramaturg.api.evaluation.v1.run_service_pb2 import RERUN_SCOPE_ALL
from dramaturg.database.database import create_engine
from dramaturg.datasets import Format
from dramaturg.service import context
from dramaturg.service.errors import ServiceError
from dramaturg.testing import until
from gateway.runs.engine import sample_evaluation, workflows
from gateway.runs.engine.workflows import WorkflowClient
from gateway.runs.store import open_store, tables
from gateway.runs.store.tables import RUN_PARTS
from tests.support.datasets import written
from tests.support.engines import judges_of, lines, open_runs, runs_with, script_rows, scripts_spec
from tests.support.gateway import Fake, agents, all_pass
from tests.support.processes import worker_processes
from tests.support.runs import create, judged

LOOK_SECONDS = 0.1
"""How often an engine looks where a test waits for what it must not do."""


class Gate:
    """A critic that can be held up, and counts whom it answers."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.asked = 0
        self.waiting = 0
        self.most = 0
        self.cancelled = 0

    async def __call__(self, request: Any) -> Any:
        self.asked += 1
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        return all_pass("critic")


async def test_a_run_is_carried_out(each_store_url: str) -> None:
    async with runs_with(each_store_url) as runs:
        run_id = await runs.create(scripts_spec(), script_rows(60, candidates=2))
        run = await runs.ended(run_id)
        samples = runs.samples(run_id)
    assert (run.state, run.state_reason) == (run_pb2.RUN_STATE_SUCCEEDED, "")
    assert (run.counts.samples, run.counts.succeeded, run.counts.failed) == (60, 60, 0)
    assert run.counts.judgements == 60 * 2 * 7
    assert run.counts.interrupted == 0
    # A gold answer for each task, and three agents for each candidate.
    assert run.counts.usage == Usage(
        prompt_token_count=60 * 7 * 10, completion_token_count=60 * 7 * 2, provider_call_count=60 * 7
    )
    assert run.manifest.row_count == 60
    assert run.start_time is not None
    assert run.end_time is not None
    assert [sample.index for sample in samples] == list(range(60))
    assert [sample.scripts.task.id for sample in samples] == [f"t{index}" for index in range(60)]
    assert {sample.attempt_count for sample in samples} == {1}


async def test_a_gateway_alone_waits_for_no_queue(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for poll in ("_RUNS_POLL_SECONDS", "_BATCHES_POLL_SECONDS"):
        monkeypatch.setattr(workflows, poll, 1000.0)
    async with runs_with(sqlite_url) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), script_rows(60)))
    assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, 60)


@pytest.mark.parametrize("error", [None, KeyError("of the engine")])
async def test_the_end_of_a_local_batch_is_notified(sqlite_url: str, error: Exception | None) -> None:
    async with runs_with(sqlite_url) as runs:

        async def evaluate(run_id: str, attempt: int, indices: Any) -> None:
            del run_id, attempt, indices
            if error is not None:
                raise error

        runs.engine.evaluate_batch = evaluate  # type: ignore[method-assign]
        ended, workflows = asyncio.Event(), WorkflowClient()
        await workflows.start_batch(ended.set, "run", 1, [0])
        await asyncio.wait_for(ended.wait(), 20)
        errors = [batch.error for batch in await workflows.batches("run", 1)]
    assert errors == ([] if error is None else ["KeyError: 'of the engine'"])


async def test_rows_that_are_no_requests_fail_and_the_others_do_not(store_url: str) -> None:
    rows = lines(script_rows(3)) + b'{"task": {}}\nno json\n' + lines(script_rows(2))
    async with runs_with(store_url) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), rows))
        samples = runs.samples(run.id)
    assert (run.state, run.outcome) == (run_pb2.RUN_STATE_PARTIAL, run_pb2.RUN_OUTCOME_LOW_COVERAGE)
    assert run.counts.failures_by_reason == {"FIELD_INVALID": 2}
    assert run.state_reason.startswith(
        "the coverage is 0.714; the policy asks for 0.9: 2 of 7 samples failed (FIELD_INVALID 2). "
    )
    assert (run.counts.succeeded, run.counts.failed) == (5, 2)
    assert [sample.line for sample in samples if sample.state == run_pb2.SAMPLE_STATE_FAILED] == [4, 5]
    assert [error.line for error in run.manifest.row_errors] == [4, 5]


async def test_a_dataset_that_cannot_be_read_fails_the_run(sqlite_url: str) -> None:
    async with runs_with(sqlite_url) as runs:
        elsewhere = scripts_spec(dataset=Dataset(uri="/etc/passwd.jsonl"))
        outside = await runs.ended(await runs.create(elsewhere, b""))
        empty = await runs.ended(await runs.create(scripts_spec(), b""))
    assert outside.state == empty.state == run_pb2.RUN_STATE_FAILED
    assert "outside of the folders" in outside.state_reason
    assert empty.state_reason == "the dataset has no rows"


async def test_a_dataset_whose_reader_dies_three_times_fails_the_run(sqlite_url: str) -> None:
    killed: set[int] = set()
    async with runs_with(sqlite_url) as runs:
        spec = scripts_spec(dataset=Dataset(content=b"x", format=run_pb2.DATASET_FORMAT_PARQUET))
        run_id = await runs.create(spec, written(script_rows(3), Format.PARQUET))
        async with asyncio.timeout(60):
            while (run := runs.get(run_id)).state == run_pb2.RUN_STATE_PREPARING:
                for child in set(worker_processes()) - killed:
                    os.kill(child, signal.SIGKILL)
                    killed.add(child)
                await asyncio.sleep(0.01)
        again = await asyncio.to_thread(runs.store.attempts.begin, run_id, RERUN_SCOPE_ALL)
        assert again is not None
        await runs.engine.submit(run_id)
        later = await runs.ended(run_id)
    assert len(killed) == 3
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert "the process that read it died 3 times" in run.state_reason
    assert later.state == run_pb2.RUN_STATE_SUCCEEDED, "a rerun may try again"


async def test_a_dataset_that_takes_too_much_processor_time_is_not_read_again(sqlite_url: str) -> None:
    killed: set[int] = set()
    async with runs_with(sqlite_url) as runs:
        spec = scripts_spec(dataset=Dataset(content=b"x", format=run_pb2.DATASET_FORMAT_PARQUET))
        run_id = await runs.create(spec, written(script_rows(3), Format.PARQUET))
        async with asyncio.timeout(60):
            while (run := runs.get(run_id)).state == run_pb2.RUN_STATE_PREPARING:
                for child in set(worker_processes()) - killed:
                    os.kill(child, signal.SIGXCPU)  # as the kernel does
                    killed.add(child)
                await asyncio.sleep(0.01)
    assert len(killed) == 1
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert "it took more than 1800 s of processor time" in run.state_reason


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (b"no json\n" * 3, "none of the 3 rows is a valid request; the first: line 1: "),
        (b'\n{"task": {}}\n', "the only row is not a valid request: line 2, "),
    ],
)
async def test_a_dataset_without_a_valid_row_fails_the_run(sqlite_url: str, rows: bytes, reason: str) -> None:
    async with runs_with(sqlite_url) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), rows))
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.state_reason.startswith(reason)
    assert len(run.state_reason) > len(reason)
    assert run.counts.failed == run.counts.samples


async def test_a_paused_run_begins_nothing_until_it_is_resumed(store_url: str) -> None:
    gate = Gate()
    gate.open.clear()
    async with runs_with(store_url, Fake("critic", gate), poll_seconds=LOOK_SECONDS) as runs:
        spec = scripts_spec(limits=RunLimits(max_concurrent_samples=4))
        run_id = await runs.create(spec, script_rows(40))
        await runs.until(run_id, lambda run: gate.waiting == 4)
        await runs.change(run_id, run_pb2.RUN_STATE_PAUSED)
        # The promise: after so long it is known.
        await asyncio.sleep(1)
        gate.open.set()
        await runs.until(run_id, lambda run: run.counts.succeeded == 4)
        assert runs.store.samples.running(run_id) == 0
        # Longer than any look takes: whatever would be begun by mistake has been.
        await asyncio.sleep(4 * LOOK_SECONDS)
        assert gate.asked == 4
        await runs.change(run_id, run_pb2.RUN_STATE_RUNNING)
        run = await runs.ended(run_id)
    assert run.counts.succeeded == gate.asked == 40
    assert run.counts.interrupted == 0
    assert gate.most == 4


async def test_a_run_that_another_gateway_cancelled_cuts_its_calls(store_url: str) -> None:
    gate = Gate()
    gate.open.clear()
    async with runs_with(store_url, Fake("critic", gate)) as runs:
        run_id = await runs.create(scripts_spec(), script_rows(100))
        await runs.until(run_id, lambda run: gate.waiting == 16)
        # Not told to the engine, as when another gateway was asked.
        runs.store.runs.change_state(
            run_id, run_pb2.RUN_STATE_CANCELLED, expected=[run_pb2.RUN_STATE_RUNNING]
        )
        await runs.until(run_id, lambda run: gate.waiting == 0)
        assert gate.asked == gate.cancelled == 16
        await runs.until(run_id, lambda run: runs.store.samples.running(run_id) == 0)
        assert runs.get(run_id).state == run_pb2.RUN_STATE_CANCELLED


async def test_the_answers_of_cancelled_samples_are_paid_for(store_url: str) -> None:
    gate = Gate()
    gate.open.clear()
    async with runs_with(store_url, Fake("critic", gate)) as runs:
        run_id = await runs.create(scripts_spec(), script_rows(100))
        await runs.until(run_id, lambda run: gate.waiting == 16)
        await runs.change(run_id, run_pb2.RUN_STATE_CANCELLED)
        # The gold answer of each sample came before the call of its critic.
        run = await runs.until(run_id, lambda run: run.counts.usage.provider_call_count >= 16)
        spent = runs.store.spending.today("")
    assert run.counts.succeeded == 0
    assert spent.tokens == run.counts.usage.prompt_token_count + run.counts.usage.completion_token_count


async def test_limits_are_followed_while_it_runs(store_url: str) -> None:
    gate = Gate()
    gate.open.clear()
    async with runs_with(store_url, Fake("critic", gate)) as runs:
        run_id = await runs.create(scripts_spec(limits=RunLimits(max_concurrent_samples=2)), script_rows(60))
        await runs.until(run_id, lambda run: gate.waiting == 2)
        spec = runs.get(run_id).spec
        spec.limits.max_concurrent_samples = 8
        runs.store.runs.update_spec(run_id, spec)
        runs.notifier.notify(run_id)
        gate.open.set()
        run = await runs.ended(run_id)
    assert run.counts.succeeded == 60
    assert gate.most <= 8


async def test_a_run_ends_at_its_budget_and_keeps_what_it_has(store_url: str) -> None:
    async with runs_with(store_url) as runs:
        spec = scripts_spec(
            budget=RunBudget(max_provider_call_count=40), limits=RunLimits(max_concurrent_samples=2)
        )
        run = await runs.ended(await runs.create(spec, script_rows(100)))
        assert runs.store.samples.running(run.id) == 0
    assert run.state == run_pb2.RUN_STATE_PARTIAL
    assert run.state_reason == "the budget of 40 provider calls is reached"
    # Four calls a sample; at the tenth the budget is reached, and one more may be under way.
    assert 10 <= run.counts.succeeded <= 11
    assert run.counts.usage.provider_call_count == 4 * run.counts.succeeded


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (
            RunPolicy(max_failed_count=2),
            "the policy allows 2 failed samples: 3 of 10 samples failed (FIELD_INVALID 3)",
        ),
        (
            RunPolicy(max_failed_fraction=0.25),
            "the policy allows 0.25 of all samples to fail: 3 of 10 samples failed (FIELD_INVALID 3)",
        ),
    ],
)
async def test_too_many_failures_fail_the_run(sqlite_url: str, policy: RunPolicy, reason: str) -> None:
    rows = lines(script_rows(7)) + b"{}\n" * 3
    async with runs_with(sqlite_url) as runs:
        run = await runs.ended(await runs.create(scripts_spec(policy=policy), rows))
    assert (run.state, run.state_reason) == (run_pb2.RUN_STATE_FAILED, reason)


async def test_too_many_abstentions_fail_the_run_when_all_is_done(sqlite_url: str) -> None:
    async def refuse(request: Any) -> Any:
        raise ServiceError(
            grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_INTERNAL, "cannot do anything"
        )

    spec = scripts_spec(policy=RunPolicy(max_abstained_fraction=0.1, sample_attempt_count=1))
    async with runs_with(sqlite_url, Fake("commonsense", refuse)) as runs:
        run = await runs.ended(await runs.create(spec, script_rows(10)))
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.outcome == run_pb2.RUN_OUTCOME_POLICY_EXCEEDED
    assert run.state_reason.startswith(
        "the policy allows 0.1 of all judgements to abstain: "
        "10 of 70 judgements abstained (JUDGE_UNAVAILABLE 10). "
    )
    assert "cannot do anything" in run.state_reason
    assert run.counts.succeeded == 10


async def test_a_new_attempt_evaluates_the_samples_of_its_scope(store_url: str) -> None:
    gate = Gate()
    async with runs_with(store_url, Fake("critic", gate)) as runs:
        run_id = await runs.create(scripts_spec(), script_rows(20))
        await runs.ended(run_id)
        assert runs.store.attempts.begin(run_id, RERUN_SCOPE_ALL) is not None
        await runs.engine.submit(run_id)
        run = await runs.ended(run_id)
    assert (run.state, run.attempt, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, 2, 20)
    assert gate.asked == 40


async def test_the_attempts_at_a_sample_share_a_request_id_and_a_rerun_has_another(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generation service bounds the failed attempts of a request id."""
    monkeypatch.setattr(sample_evaluation, "FIRST_WAIT_SECONDS", 0.01)
    asked: Counter[str] = Counter()

    async def fail_once(request: Any) -> Any:
        del request
        served = context.current()
        assert served is not None
        asked[served.request_id] += 1
        if asked[served.request_id] == 1:
            raise ServiceError(
                grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE, "not now"
            )
        return all_pass("critic")

    async with runs_with(sqlite_url, Fake("critic", fail_once)) as runs:
        run_id = await runs.create(scripts_spec(policy=RunPolicy(sample_attempt_count=2)), script_rows(3))
        await runs.ended(run_id)
        first = set(asked)
        assert runs.store.attempts.begin(run_id, RERUN_SCOPE_ALL) is not None
        await runs.engine.submit(run_id)
        await runs.ended(run_id)
    assert len(first) == 3
    assert len(asked) == 6
    assert set(asked.values()) == {2}
    assert all(request_id.startswith(f"{run_id}/") for request_id in asked)


async def test_samples_in_progress_at_a_stop_continue_after_the_restart(each_store_url: str) -> None:
    gate = Gate()
    async with judges_of(agents(Fake("critic", gate))) as entries:
        async with open_runs(each_store_url, entries, drain_timeout_seconds=0) as runs:
            gate.open.clear()
            run_id = await runs.create(scripts_spec(), script_rows(50))
            await runs.until(run_id, lambda run: gate.waiting == 16)
        assert gate.waiting == 0
        gate.open.set()
        async with open_runs(each_store_url, entries) as runs:
            run = await runs.ended(run_id)
    assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, 50)
    # They were given back in order.
    assert run.counts.interrupted == 0


async def test_samples_in_progress_at_a_stop_may_finish(store_url: str) -> None:
    gate = Gate()
    gate.open.clear()
    async with judges_of(agents(Fake("critic", gate))) as entries:
        async with open_runs(store_url, entries, drain_timeout_seconds=30) as runs:
            run_id = await runs.create(scripts_spec(), script_rows(50))
            await runs.until(run_id, lambda run: gate.waiting == 16)
            asyncio.get_running_loop().call_later(0.3, gate.open.set)
        async with open_runs(store_url, entries) as runs:
            run = await runs.ended(run_id)
    assert run.counts.succeeded == gate.asked == 50


async def test_runs_of_higher_priority_come_first(sqlite_url: str) -> None:
    order: list[str] = []
    gate = Gate()
    gate.open.clear()

    async def note(request: Any) -> Any:
        order.append(request.task.topic)
        return await gate(request)

    def rows(topic: str) -> list[Any]:
        made: list[Any] = script_rows(30)
        for row in made:
            row.task.topic = topic
        return made

    async with runs_with(sqlite_url, Fake("critic", note), max_concurrent_samples=2) as runs:
        late = await runs.create(scripts_spec(), rows("late"))
        await runs.until(late, lambda run: gate.waiting == 2)
        urgent = await runs.create(scripts_spec(limits=RunLimits(priority=10)), rows("urgent"))
        # Its batches are in this gateway's hands, and no slot is free.
        workflows = WorkflowClient()
        while True:
            if len([batch for batch in await workflows.batches(urgent, 1) if batch.executor_id]) == 2:
                break
            await asyncio.sleep(0.05)
        gate.open.set()
        await runs.ended(urgent)
        await runs.ended(late)
    # A batch may be claimed a moment before its samples wait for slots.
    assert order[:50].count("urgent") == 30


async def test_a_deletion_that_was_cut_off_is_completed(each_store_url: str) -> None:
    store = open_store(each_store_url)
    for run_id in ("deleted", "kept"):
        create(store, run_id, samples=3)
        store.runs.change_state(run_id, run_pb2.RUN_STATE_RUNNING, expected=[run_pb2.RUN_STATE_PREPARING])
        store.attempts.finish(run_id, 1, [judged(0, {"m": [True]})])
        store.runs.change_state(run_id, run_pb2.RUN_STATE_CANCELLED, expected=[run_pb2.RUN_STATE_RUNNING])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(store.runs), "purge", lambda _: False)  # the process is killed here
        store.runs.delete("deleted")
    store.close()
    engine, _ = create_engine(each_store_url)

    def rows_left() -> dict[str, int]:
        with engine.connect() as connection:
            count = sa.select(sa.func.count())
            return {
                table.name: connection.execute(count.select_from(table)).scalar_one()
                for table in (*RUN_PARTS, tables.runs)
            }

    before = rows_left()
    assert before["runs"] == 2
    async with runs_with(each_store_url) as runs:
        await until(lambda: rows_left()["runs"] == 1)
        assert runs.get("kept").counts.succeeded == 1
    assert rows_left() == {name: count // 2 for name, count in before.items()}
    engine.dispose()
