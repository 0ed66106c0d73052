"""A gateway without runs asks for nothing, and is there again when there is one."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.database import StoreError
from dramaturg.testing import until
from gateway.runs.engine import engine as engine_module
from gateway.runs.engine.engine import QueueLifecycle
from gateway.runs.engine.workflows import WORKFLOW_VERSION
from gateway.runs.records import NewRun
from tests.support.engines import SECONDS, lines, runs_with, script_rows, scripts_spec


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues close soon."""
    monkeypatch.setattr(engine_module, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(engine_module, "_ACTIVE_POLL_SECONDS", 0.05)


def polls() -> bool:
    """Whether a thread of this process asks a queue for work."""
    return any(thread.name.startswith("queue-worker-") for thread in threading.enumerate())


async def test_an_idle_gateway_closes_its_queues_and_executes_later_runs(each_store_url: str) -> None:
    async with runs_with(each_store_url) as runs:
        await until(lambda: not polls())
        # The first comes while the queues close, the second while they are closed.
        for _ in range(2):
            run = await runs.ended(await runs.create(scripts_spec(), script_rows(3)))
            assert run.state == run_pb2.RUN_STATE_SUCCEEDED
            await until(lambda: not polls())


async def test_an_idle_gateway_sees_the_run_of_another(postgres_url: str) -> None:
    async with runs_with(postgres_url) as runs:
        await until(lambda: not polls())
        new = NewRun(str(uuid.uuid4()), "", scripts_spec(), lines(script_rows(3)))
        runs.store.runs.create(new)  # and nobody tells this one's engine
        run = await runs.ended(new.id)
    assert run.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_an_idle_gateway_starts_its_runs_while_another_leads(postgres_url: str) -> None:
    async with runs_with(postgres_url) as runs:
        # The first by name looks after what nobody works on: one that is there, and does nothing.
        runs.store.executors.renew(f"0@{WORKFLOW_VERSION}", 2 * SECONDS)
        await until(lambda: not polls())
        run = await runs.ended(await runs.create(scripts_spec(), script_rows(3)))
    assert run.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_queues_stay_open_while_the_store_is_unavailable() -> None:
    asked = asyncio.Event()

    async def wanted() -> bool:
        asked.set()
        raise StoreError("it is away")

    work = Work()
    keeping = asyncio.create_task(run(QueueLifecycle(work.open, wanted, 0.01)))
    for _ in range(10):
        await asyncio.wait_for(asked.wait(), SECONDS)
        asked.clear()
    assert work.is_open
    keeping.cancel()
    await asyncio.wait([keeping])
    assert not work.is_open


async def test_queues_that_cannot_be_opened_are_retried() -> None:
    wants = [False]

    async def wanted() -> bool:
        return wants[0]

    work = Work()
    lifecycle = QueueLifecycle(work.open, wanted, 0.01)
    keeping = asyncio.create_task(run(lifecycle))
    await until(lambda: work.opened == 1 and not work.is_open)
    work.failures, wants[0] = 2, True
    await until(lambda: work.is_open)
    assert (work.opened, work.failures) == (2, 0)
    keeping.cancel()
    await asyncio.wait([keeping])


class Work:
    """Notes when it is opened, and fails as often as it is told to."""

    def __init__(self) -> None:
        self.is_open = False
        self.opened = 0
        self.failures = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Opens it."""
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the database is away")
        self.opened += 1
        self.is_open = True
        try:
            yield
        finally:
            self.is_open = False


async def run(lifecycle: QueueLifecycle) -> None:
    await lifecycle.run(await lifecycle.open())
