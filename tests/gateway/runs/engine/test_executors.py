"""A gateway that loses its lease ends its process, and the first live gateway leads.

Runs that nobody works on are found: never submitted, left by a dead gateway, or of another version.

What the tracker of DBOS reports of recovery (dbos-transact-py) loses no run and buys nothing twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from dbos._sys_db import SystemDatabase

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.database import StoreError
from dramaturg.service.threads import ThreadPool
from dramaturg.testing import until
from gateway.runs.engine import executors, workflows
from gateway.runs.engine.parts import LOST_LEASE_STATUS, ClusterMembership
from gateway.runs.engine.workflows import WorkflowClient, executor_id_of
from gateway.runs.records import NewRun, RunRecord
from gateway.runs.settings import RunsSettings
from gateway.settings import JudgeEntry
from tests.support.engines import Runs, judges_of, lines, open_runs, runs_with, script_rows, scripts_spec
from tests.support.gateway import Fake, agents, all_pass


class UnreachableLeases:
    """Leases that cannot be renewed."""

    def renew(self, executor_id: str, seconds: float) -> None:
        raise StoreError("nobody answers")

    def live(self) -> list[str]:
        return ["b@1", "a@1"]


def membership(leases: Any, threads: ThreadPool, **fields: Any) -> ClusterMembership:
    return ClusterMembership("b@1", leases, threads, **{"single": False, "lease_seconds": 1.0, **fields})


async def test_a_process_that_lost_its_lease_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    def end(status: int) -> None:
        ended.append(status)
        raise ChildProcessError

    monkeypatch.setattr("os._exit", end)
    threads = ThreadPool(1)
    holding = membership(UnreachableLeases(), threads)
    holding._held_until = time.monotonic() + 0.2
    with pytest.raises(ExceptionGroup):
        await holding.keep_lease(0.05)
    threads.close()
    assert set(ended) == {LOST_LEASE_STATUS}


async def test_the_first_by_id_leads_and_a_single_gateway_reads_no_leases() -> None:
    threads = ThreadPool(1)
    leases = UnreachableLeases()
    assert await membership(leases, threads).live() == ["a@1", "b@1"]
    assert not await membership(leases, threads).is_leader()
    assert await membership(leases, threads, single=True).live() == ("b@1",)
    assert await membership(leases, threads, single=True).is_leader()
    threads.close()


async def test_a_run_whose_creator_died_before_it_was_submitted_is_found(store_url: str) -> None:
    async with runs_with(store_url, lease_renewal_seconds=0.2, lease_seconds=5) as runs:
        content = lines(script_rows(3))
        runs.store.runs.create(NewRun(id="forgotten", tenant="", spec=scripts_spec(), content=content))
        run = await runs.ended("forgotten")
    assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, 3)


async def test_a_run_of_another_version_that_nobody_has_fails_and_says_so(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def never(request: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    async with judges_of(agents(Fake("critic", never))) as entries:
        async with open_runs(store_url, entries, drain_timeout_seconds=0) as runs:
            run_id = await runs.create(scripts_spec(), script_rows(3))
            await asked.wait()
        for module in (executors, workflows):
            monkeypatch.setattr(module, "WORKFLOW_VERSION", "2")
        async with open_runs(store_url, entries, drain_timeout_seconds=0, lease_renewal_seconds=0.2) as runs:
            run = await runs.ended(run_id)
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert "was started with workflow version 1" in run.state_reason
    assert "have version 2" in run.state_reason


async def test_the_work_of_a_lost_gateway_is_taken_over(postgres_url: str) -> None:
    """DBOS itself leaves it where it is (dbos-transact-py, issue 453)."""
    gone = asyncio.Event()

    async def hang(request: Any) -> Any:
        if not gone.is_set():
            await asyncio.Event().wait()
        return all_pass("critic")

    async with judges_of(agents(Fake("critic", hang))) as entries:
        async with open_runs(postgres_url, entries, drain_timeout_seconds=0) as runs:
            run_id = await runs.create(scripts_spec(), script_rows(20))
            await runs.until(run_id, lambda run: runs.store.samples.running(run_id) > 0)
        # It stopped in order, so its lease is gone, and its orchestrator is still assigned to it.
        gone.set()
        async with open_runs(postgres_url, entries, lease_renewal_seconds=0.2) as runs:
            run = await runs.ended(run_id)
    assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, 20)


async def test_one_process_has_one_engine(sqlite_url: str, tmp_path: Any) -> None:
    async with runs_with(sqlite_url):
        with pytest.raises(RuntimeError, match="one per process"):
            async with runs_with(f"sqlite:///{tmp_path / 'other.sqlite3'}"):
                pass


SAMPLES = 20


class Judge:
    """Hangs until it is released, and then answers."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.asked = Counter[str]()
        """Answers by task."""

    async def __call__(self, request: Any) -> Any:
        await self.released.wait()
        self.asked[request.task.id] += 1
        return all_pass("critic")


@asynccontextmanager
async def lost_work(url: str) -> AsyncIterator[tuple[str, Sequence[JudgeEntry], Judge, str]]:
    """A run whose workflows are assigned to a gateway that ended: its id, judges, and the gateway's id."""
    judge = Judge()
    async with judges_of(agents(Fake("critic", judge))) as entries:
        async with open_runs(url, entries, drain_timeout_seconds=0) as runs:
            run_id = await runs.create(scripts_spec(), script_rows(SAMPLES))
            await runs.until(run_id, lambda _: runs.store.samples.running(run_id) > 0)
            gone = runs.engine._membership.executor_id
        yield run_id, entries, judge, gone


def assignments(url: str) -> list[tuple[str, str, str]]:
    """The workflows that have not ended: id, status and executor."""
    query = (
        "SELECT workflow_uuid, status, executor_id FROM dbos.workflow_status "
        "WHERE status IN ('PENDING', 'ENQUEUED') ORDER BY 1"
    )
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


async def ended(runs: Runs, run_id: str, judge: Judge) -> RunRecord:
    run = await runs.ended(run_id)
    assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, SAMPLES)
    assert set(judge.asked.values()) == {1}
    return run


async def test_a_second_recovery_leaves_what_another_gateway_has_claimed(postgres_url: str) -> None:
    """Issue 742: it began from a list that was read before the claim."""
    async with (
        lost_work(postgres_url) as (run_id, entries, judge, gone),
        open_runs(postgres_url, entries, lease_renewal_seconds=0.2) as runs,
    ):
        await runs.until(run_id, lambda _: runs.store.samples.running(run_id) > 0)
        mine = runs.engine._membership.executor_id
        await until(lambda: {executor for _, _, executor in assignments(postgres_url)} == {mine}, 60)
        before = assignments(postgres_url)
        await WorkflowClient().recover([gone])
        assert assignments(postgres_url) == before
        judge.released.set()
        await ended(runs, run_id, judge)


async def test_work_whose_recovery_meets_an_error_of_the_database_is_recovered_later(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 716: the workflow stayed assigned to the executor that ended, and nobody looked again."""
    recover, failures = SystemDatabase.reenqueue_for_recovery, 0

    def fail_at_first(database: Any, *given: Any) -> bool:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise sa.exc.OperationalError("UPDATE", {}, Exception("the server is being restarted"))
        return recover(database, *given)

    async with lost_work(postgres_url) as (run_id, entries, judge, _):
        monkeypatch.setattr(SystemDatabase, "reenqueue_for_recovery", fail_at_first)
        judge.released.set()
        async with open_runs(postgres_url, entries, lease_renewal_seconds=0.2) as runs:
            await ended(runs, run_id, judge)
    assert failures == 3


async def test_work_that_a_gateway_claims_while_it_ends_is_recovered_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 804: it claimed what its successor had recovered, and its successor looked no more."""
    recover, claimed = WorkflowClient.recover, 0

    async with lost_work(postgres_url) as (run_id, entries, judge, gone):

        async def recover_and_lose(client: WorkflowClient, executors: Sequence[str]) -> None:
            nonlocal claimed
            await recover(client, executors)
            if not claimed:
                with psycopg.connect(postgres_url) as connection:
                    claimed = connection.execute(
                        "UPDATE dbos.workflow_status SET status = 'PENDING', executor_id = %s "
                        "WHERE status = 'ENQUEUED'",
                        (gone,),
                    ).rowcount

        monkeypatch.setattr(WorkflowClient, "recover", recover_and_lose)
        judge.released.set()
        async with open_runs(postgres_url, entries, lease_renewal_seconds=0.2) as runs:
            await ended(runs, run_id, judge)
    assert claimed


def test_no_two_processes_on_postgresql_have_one_executor_id() -> None:
    """Issue 804 needs two processes of one id."""
    settings = RunsSettings(url="postgresql://user@host/database")
    assert executor_id_of(settings) != executor_id_of(settings)
