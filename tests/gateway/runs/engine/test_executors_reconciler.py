"""Runs that nobody works on are found: never submitted, left by a dead gateway, or of another version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dramaturg.api.evaluation.v1 import run_pb2
from gateway.runs.engine import executors, workflows
from gateway.runs.records import NewRun
from tests.support.engines import judges_of, lines, open_runs, runs_with, script_rows, scripts_spec
from tests.support.gateway import Fake, agents, all_pass


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
