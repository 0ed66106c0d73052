"""What the tracker of DBOS reports of recovery (dbos-transact-py) loses no run and buys nothing twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from dbos._sys_db import SystemDatabase

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.testing import until
from gateway.runs.engine.workflows import WorkflowClient, executor_id_of
from gateway.runs.records import RunRecord
from gateway.runs.settings import RunsSettings
from gateway.settings import JudgeEntry
from tests.support.engines import Runs, judges_of, open_runs, script_rows, scripts_spec
from tests.support.gateway import Fake, agents, all_pass

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
