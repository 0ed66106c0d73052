"""A gateway that holds its tenants to their quotas, over real gRPC.

The tenants that made the last calls.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1 import run_service_pb2_grpc
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import ListJudgesRequest
from dramaturg.api.evaluation.v1.judge_directory_service_pb2_grpc import JudgeDirectoryServiceStub
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    DatasetManifest,
)
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeCandidate, JudgeRequest
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.database import StoreError
from dramaturg.database.database import Database
from dramaturg.service.auth import caller
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import serve, until
from gateway.app import App
from gateway.judges.registry import open_registry
from gateway.proxy import ROLE_METADATA
from gateway.quotas import gate, spending, turns
from gateway.quotas.gate import Quotas, TokenBucket
from gateway.quotas.settings import Quota, QuotaSettings
from gateway.quotas.turns import RECENT_SECONDS, RecentCalls
from gateway.runs.datasets import DatasetAccess
from gateway.runs.servicer import RunServicer
from gateway.runs.settings import RunsSettings
from gateway.runs.store import RunStore, open_store
from gateway.settings import GatewaySettings, JudgeEntry
from tests.gateway.runs.service.conftest import NotingEngine, fault, wanted
from tests.support.auth import channel_of, holder, token_settings
from tests.support.gateway import Fake, agents, all_pass, scripts_request
from tests.support.runs import judged, rows, sample_rows

ALICE, BOB = holder("team-a", "operator"), holder("team-b", "operator")


def is_exhausted(error: ServiceError, quota: str, limit: str) -> bool:
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED, error
    assert error.reason_name == "ERROR_REASON_QUOTA_EXHAUSTED"
    assert error.metadata == {"quota": quota, "limit": limit}
    assert error.retry_after is not None
    return error.retry_after > 0


@asynccontextmanager
async def gateway(
    folder: Path, *fakes: Fake, runs: RunsSettings | None = None, **quotas: Any
) -> AsyncIterator[tuple[grpc.aio.Channel, grpc.aio.Channel]]:
    """Channels of two tenants to a gateway with quotas."""
    async with AsyncExitStack() as stack:
        entries = []
        for fake in agents(*fakes):
            server = await stack.enter_async_context(serve(fake.contract(), drain_grace_seconds=0.2))
            entries.append(JudgeEntry(role=fake.role, name=fake.name, target=server.target))
        app = App(GatewaySettings(judges=tuple(entries)), runs, QuotaSettings(**quotas))
        contracts = await stack.enter_async_context(app.open())
        auth = token_settings(folder, ALICE, BOB)
        served = await stack.enter_async_context(
            Server(contracts, ServerSettings.loopback(drain_grace_seconds=0.2), auth)
        )
        yield (
            await stack.enter_async_context(channel_of(served.target, folder, ALICE)),
            await stack.enter_async_context(channel_of(served.target, folder, BOB)),
        )


async def ask(channel: grpc.aio.Channel) -> None:
    await JudgeDirectoryServiceStub(channel).ListJudges(ListJudgesRequest(), timeout=20)


async def evaluate(channel: grpc.aio.Channel, candidates: int = 2) -> Any:
    stub = EvaluationServiceStub(channel)
    events = stub.EvaluateScripts(scripts_request(candidates), timeout=20)
    return [event async for event in events][-1].result


@pytest.mark.parametrize(
    ("limit", "text"),
    [(2_000_000, "2000000"), (12_345_678.25, "12345678.25"), (5.0, "5"), (2e-5, "0.00002")],
)
def test_a_limit_in_metadata_is_a_plain_number(limit: float, text: str) -> None:
    error = gate.quota_exhausted("usd_per_day", limit, "US dollars today", None)
    assert error.metadata == {"quota": "usd_per_day", "limit": text}
    assert f" {text} US dollars" in error.message


async def test_requests_a_minute_are_each_tenants_own(tmp_path: Path) -> None:
    async with gateway(tmp_path, default={"requests_per_minute": 2}) as (alice, bob):
        await ask(alice)
        await ask(alice)
        error = await fault(ask(alice))
        assert is_exhausted(error, "requests_per_minute", "2")
        assert error.retry_after is not None
        assert error.retry_after <= 30
        await ask(bob)


async def test_a_tenants_own_quota_takes_the_place_of_the_default(tmp_path: Path) -> None:
    quotas: dict[str, Any] = {
        "default": {"requests_per_minute": 1},
        "tenants": {"team-b": {"requests_per_minute": 3}},
    }
    async with gateway(tmp_path, **quotas) as (alice, bob):
        await ask(alice)
        assert is_exhausted(await fault(ask(alice)), "requests_per_minute", "1")
        for _ in range(3):
            await ask(bob)
        assert is_exhausted(await fault(ask(bob)), "requests_per_minute", "3")


async def test_calls_under_way_are_counted_until_they_end(tmp_path: Path) -> None:
    begun, release = 0, asyncio.Event()

    async def wait(request: object) -> object:
        nonlocal begun
        begun += 1
        await release.wait()
        return all_pass("critic")

    async with gateway(tmp_path, Fake("critic", wait), default={"max_concurrent_calls": 1}) as (alice, bob):
        first = asyncio.create_task(evaluate(alice, 1))
        await until(lambda: begun > 0)
        assert is_exhausted(await fault(ask(alice)), "max_concurrent_calls", "1")
        await ask(bob)
        release.set()
        await first
        await ask(alice)
        release.clear()
        cancelled = asyncio.create_task(evaluate(alice, 1))
        before = begun
        await until(lambda: begun > before)
        cancelled.cancel()
        async with asyncio.timeout(20):
            while True:  # the server hears of it a moment later
                try:
                    await ask(alice)
                    break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.01)
        release.set()


async def test_a_burst_beside_another_tenant_waits_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "RECENT_SECONDS", 1000.0)
    monkeypatch.setattr(gate, "MAX_TURN_SECONDS", 1000.0)
    in_work, most, release = Counter[str](), 0, asyncio.Event()

    async def wait(request: object) -> object:
        nonlocal most
        tenant = caller.current().tenant
        in_work[tenant] += 1
        most = max(most, in_work["team-a"])
        await release.wait()
        in_work[tenant] -= 1
        return all_pass("critic")

    async with gateway(tmp_path, Fake("critic", wait)) as (alice, bob):
        alone = [asyncio.create_task(evaluate(alice, 1)) for _ in range(3)]
        await until(lambda: in_work.total() == 3)
        release.set()
        await asyncio.gather(*alone)
        release.clear()
        most = 0
        await ask(bob)
        burst = [asyncio.create_task(evaluate(alice, 1)) for _ in range(3)]
        await until(lambda: in_work.total() == 1)
        beside = asyncio.create_task(evaluate(bob, 1))
        await until(lambda: in_work.total() == 2)
        release.set()
        await asyncio.gather(*burst, beside)
        assert most == 1


async def test_each_item_of_a_batch_is_counted(tmp_path: Path) -> None:
    async with gateway(tmp_path, default={"max_concurrent_calls": 3}) as (alice, _):
        await evaluate(alice, 3)
        error = await fault(evaluate(alice, 4))
        assert error.metadata == {"quota": "max_concurrent_calls", "limit": "3"}
        assert error.retry_after is None, "it is never admitted"
        assert "4 items" in error.message
        stub = JudgeServiceStub(alice)
        request = JudgeRequest(
            task=scripts_request().task,
            candidates=[JudgeCandidate(id=str(number), text="1. Boil.") for number in range(4)],
        )
        judged = stub.Judge(request, timeout=20, metadata=((ROLE_METADATA, "critic"),))
        assert "4 items" in (await fault(anext(aiter(judged)))).message


async def test_each_item_counts_against_the_rate(tmp_path: Path) -> None:
    async with gateway(tmp_path, default={"requests_per_minute": 5}) as (alice, _):
        await evaluate(alice, 4)
        assert is_exhausted(await fault(evaluate(alice, 2)), "requests_per_minute", "5")
        await ask(alice)


async def test_a_cancelled_evaluation_costs_what_was_sent(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def wait(request: object) -> object:
        await release.wait()
        return all_pass("critic")

    async with gateway(tmp_path, Fake("critic", wait), default={"tokens_per_day": 20}) as (alice, _):
        events = EvaluationServiceStub(alice).EvaluateScripts(scripts_request(), timeout=20)
        assessed = 0
        async for event in events:
            assessed += event.WhichOneof("event") == "assessment"
            if assessed == 2:
                break
        events.cancel()
        assert is_exhausted(await fault(evaluate(alice)), "tokens_per_day", "20")
        release.set()


async def test_calls_at_once_do_not_share_the_last_of_the_quota(tmp_path: Path) -> None:
    begun, release = 0, asyncio.Event()

    async def wait(request: object) -> object:
        nonlocal begun
        begun += 1
        await release.wait()
        return all_pass("critic")

    # Two evaluations of 84 tokens fit, and the second may exceed the quota.
    async with gateway(tmp_path, Fake("critic", wait), default={"tokens_per_day": 200}) as (alice, _):
        release.set()
        await evaluate(alice)
        release.clear()
        first = asyncio.create_task(evaluate(alice))
        await until(lambda: begun == 4)  # two candidates each
        error = await fault(evaluate(alice))
        assert is_exhausted(error, "tokens_per_day", "200")
        assert error.retry_after is not None
        assert error.retry_after <= 1, "the call in progress may cost less than expected"
        release.set()
        await first


async def test_what_evaluations_cost_is_counted(tmp_path: Path) -> None:
    async with gateway(tmp_path, default={"tokens_per_day": 50}) as (alice, bob):
        result = await evaluate(alice)
        assert result.usage.prompt_token_count + result.usage.completion_token_count > 50
        error = await fault(evaluate(alice))
        assert is_exhausted(error, "tokens_per_day", "50")
        assert error.retry_after is not None
        assert error.retry_after <= 24 * 3600
        await ask(alice)  # which costs nothing
        await evaluate(bob)


async def test_a_day_has_a_quota_of_money(tmp_path: Path) -> None:
    async def answer(request: object) -> object:
        assessment = all_pass("critic")
        usage = Usage(provider_call_count=1, cost_usd=0.01)
        assessment.provenance.usage.CopyFrom(usage)
        assessment.provenance.completions[0].usage.CopyFrom(usage)
        return assessment

    async with gateway(tmp_path, Fake("critic", answer), default={"usd_per_day": 0.015}) as (alice, bob):
        assert (await evaluate(alice)).usage.cost_usd == 0.02
        assert is_exhausted(await fault(evaluate(alice)), "usd_per_day", "0.015")
        await ask(alice)  # which costs nothing
        await evaluate(bob)


async def test_a_new_day_is_a_new_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(tmp_path, default={"tokens_per_day": 50}) as (alice, _):
        await evaluate(alice)
        assert is_exhausted(await fault(evaluate(alice)), "tokens_per_day", "50")
        tomorrow = spending.start_of_day() + timedelta(days=1)
        monkeypatch.setattr(spending, "start_of_day", lambda: tomorrow)
        await evaluate(alice)


class Runs:
    """RunService with quotas."""

    def __init__(self, alice: grpc.aio.Channel, bob: grpc.aio.Channel, store: RunStore) -> None:
        self.alice = run_service_pb2_grpc.RunServiceStub(alice)
        self.bob = run_service_pb2_grpc.RunServiceStub(bob)
        self.store = store

    async def create(self, stub: Any) -> str:
        return str((await stub.CreateRun(pb.CreateRunRequest(spec=wanted()), timeout=20)).run.id)

    def spend(self, run_id: str, tokens: int) -> None:
        """A sample of the run with two candidates has cost so many tokens each."""
        self.store.samples.add(run_id, sample_rows(rows(range(1))))
        self.store.runs.set_manifest(run_id, DatasetManifest(sha256="x"))
        self.store.runs.change_state(run_id, RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
        self.store.samples.take(run_id, [0], "executor")
        self.store.attempts.finish(run_id, 1, [judged(0, {"m": [True], "n": [True]}, tokens)])

    def end(self, run_id: str) -> None:
        """Ends a run."""
        expected = [RUN_STATE_PREPARING, RUN_STATE_RUNNING]
        assert self.store.runs.change_state(run_id, RUN_STATE_CANCELLED, expected=expected)


@asynccontextmanager
async def runs(folder: Path, **quota: Any) -> AsyncIterator[Runs]:
    """RunService with a quota for everybody, and an engine that does nothing."""
    store = open_store(f"sqlite:///{folder}/runs.sqlite3")
    quotas = Quotas(QuotaSettings(default=Quota(**quota)))
    async with open_registry([], 4) as registry, quotas.spending.persisted(store):
        servicer = RunServicer(store, NotingEngine(), registry, DatasetAccess([]))
        contract = Contract.make(
            pb.DESCRIPTOR.services_by_name["RunService"],
            run_service_pb2_grpc.add_RunServiceServicer_to_server,
            servicer,
            name="gateway",
            version="1.0.0",
            description="Runs.",
        )
        async with (
            Server(
                [replace(contract, gate=quotas)],
                ServerSettings.loopback(drain_grace_seconds=0.2),
                token_settings(folder, ALICE, BOB),
            ) as server,
            channel_of(server.target, folder, ALICE) as alice,
            channel_of(server.target, folder, BOB) as bob,
        ):
            yield Runs(alice, bob, store)
        servicer.close()
    store.close()


async def test_runs_that_have_not_ended_are_counted(tmp_path: Path) -> None:
    async with runs(tmp_path, max_active_runs=2) as made:
        first, _ = await made.create(made.alice), await made.create(made.alice)
        assert is_exhausted(await fault(made.create(made.alice)), "max_active_runs", "2")
        await made.create(made.bob)
        made.end(first)
        await made.create(made.alice)


async def test_runs_created_at_once_do_not_slip_through(tmp_path: Path) -> None:
    async with runs(tmp_path, max_active_runs=3) as made:
        ends = await asyncio.gather(*(made.create(made.alice) for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(end, str) for end in ends) == 3


async def test_what_runs_cost_is_counted_and_not_forgotten_with_them(tmp_path: Path) -> None:
    async with runs(tmp_path, tokens_per_day=10) as made:
        run_id = await made.create(made.alice)
        await made.create(made.alice)
        made.spend(run_id, 6)
        assert is_exhausted(await fault(made.create(made.alice)), "tokens_per_day", "10")
        await made.create(made.bob)
        made.end(run_id)
        await made.alice.DeleteRun(pb.DeleteRunRequest(run_id=run_id), timeout=20)
        assert is_exhausted(await fault(made.create(made.alice)), "tokens_per_day", "10")


async def test_to_read_a_run_costs_nothing(tmp_path: Path) -> None:
    async with runs(tmp_path, tokens_per_day=10) as made:
        run_id = await made.create(made.alice)
        made.spend(run_id, 2)
        for _ in range(5):
            found = await made.alice.GetRun(pb.GetRunRequest(run_id=run_id), timeout=20)
        assert found.run.progress.usage.prompt_token_count + found.run.progress.usage.completion_token_count
        await made.alice.CancelRun(pb.CancelRunRequest(run_id=run_id), timeout=20)
        await made.create(made.alice)


async def test_a_run_costs_on_the_day_of_the_purchase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = 0.0
    now, today = Database.now, spending.start_of_day
    monkeypatch.setattr(Database, "now", lambda *given: now(*given) + int(later * 1e6))
    monkeypatch.setattr(spending, "start_of_day", lambda: today() + timedelta(seconds=later))
    async with runs(tmp_path, tokens_per_day=10) as made:
        first = await made.create(made.alice)
        later = 24 * 3600
        made.spend(first, 6)
        assert is_exhausted(await fault(made.create(made.alice)), "tokens_per_day", "10")
        later *= 2
        await made.create(made.alice)


async def test_a_store_that_cannot_be_read_is_not_zero_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runs(tmp_path, tokens_per_day=10) as made:
        made.spend(await made.create(made.alice), 6)

        def fail(*_: Any) -> Any:
            raise StoreError("postgresql://secret is away")

        monkeypatch.setattr(made.store.spending, "today", fail)
        for _ in range(3):
            error = await fault(made.create(made.alice))
            assert error.code is grpc.StatusCode.UNAVAILABLE
            assert error.reason_name == "ERROR_REASON_STORE_UNAVAILABLE"
            assert "secret" not in error.message
        monkeypatch.undo()
        assert is_exhausted(await fault(made.create(made.alice)), "tokens_per_day", "10")


async def test_what_was_spent_outlasts_a_restart(tmp_path: Path) -> None:
    settings = RunsSettings(enabled=True, url=f"sqlite:///{tmp_path}/runs.sqlite3", drain_timeout_seconds=0)
    for number in range(2):
        async with gateway(tmp_path, runs=settings, default={"tokens_per_day": 50}) as (alice, bob):
            if number == 0:
                await evaluate(alice)
            assert is_exhausted(await fault(evaluate(alice)), "tokens_per_day", "50")
            await JudgeDirectoryServiceStub(bob).ListJudges(ListJudgesRequest(), timeout=20)


async def test_calls_at_once_do_not_all_pass_with_the_last_unit(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def wait(request: object) -> object:
        await release.wait()
        return all_pass("critic")

    async with gateway(tmp_path, Fake("critic", wait), default={"tokens_per_day": 1}) as (alice, bob):
        calls = [asyncio.create_task(evaluate(alice)) for _ in range(8)]
        await until(lambda: sum(call.done() for call in calls) == 7)
        for call in [call for call in calls if call.done()]:
            error = await fault(call)
            assert is_exhausted(error, "tokens_per_day", "1")
        release.set()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(not isinstance(end, Exception) for end in ends) == 1
        # Nothing stays reserved for calls that have ended.
        assert is_exhausted(await fault(evaluate(alice)), "tokens_per_day", "1")
        await evaluate(bob)


@pytest.mark.parametrize(
    "settings",
    [
        {"default": {"requests_per_minute": 0}},
        {"default": {"usd_per_day": -1}},
        {"default": {"requests_a_minute": 5}},
        {"tenants": {"Team A": {}}},
    ],
)
def test_quotas_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        QuotaSettings(**settings)


def test_calls_of_others_count_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    calls = RecentCalls()
    assert not calls.has_others("a")
    calls.note("a")
    assert not calls.has_others("a")
    assert calls.has_others("b")
    calls.note("b")
    calls.note("b")
    assert calls.has_others("a")
    assert calls.has_others("b")
    now = RECENT_SECONDS / 2
    calls.note("a")
    now = RECENT_SECONDS
    assert calls.has_others("b")
    assert not calls.has_others("a")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_minutes_worth_at_once_and_then_one_by_one() -> None:
    clock = Clock()
    bucket = TokenBucket(6, clock)
    assert [bucket.take() for _ in range(7)] == [0, 0, 0, 0, 0, 0, 10.0]
    clock.now += 9.9
    assert math.isclose(bucket.take(), 0.1)
    clock.now += 0.11
    assert bucket.take() == 0
    clock.now += 3600
    assert [bucket.take() > 0 for _ in range(7)] == [False] * 6 + [True]


@given(
    a_minute=st.integers(1, 500),
    pauses=st.lists(st.floats(0, 30, allow_nan=False), max_size=200),
)
def test_never_more_than_a_minutes_worth_beyond_the_rate(a_minute: int, pauses: list[float]) -> None:
    clock = Clock()
    bucket, taken = TokenBucket(a_minute, clock), 0
    for pause in pauses:
        clock.now += pause
        wait = bucket.take()
        taken += wait == 0
        assert 0 <= wait <= 60 / a_minute + 1e-6
    assert taken <= a_minute + (clock.now - 1000) * a_minute / 60 + 1e-6


@given(a_minute=st.integers(1, 500))
def test_after_the_wait_there_is_one(a_minute: int) -> None:
    clock = Clock()
    bucket = TokenBucket(a_minute, clock)
    for _ in range(a_minute):
        assert bucket.take() == 0
    clock.now += bucket.take() + 1e-6
    assert bucket.take() == 0


def test_a_batch_takes_each_of_its_items() -> None:
    clock = Clock()
    bucket = TokenBucket(10, clock)
    assert bucket.take(4) == 0
    assert math.isclose(bucket.take(8), 12.0)
    clock.now += 24
    assert bucket.take(25) == 0, "more than a minute's, once a minute's are there"
    assert math.isclose(bucket.take(), 96.0)
