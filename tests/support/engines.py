"""A run engine in this process, with a store and judges that are functions."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.run_pb2 import RunSample, RunSpec, ScriptsRunOptions
from dramaturg.testing import serve
from gateway.evaluations.kinds import Evaluations
from gateway.evaluations.scope import Timeouts
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import open_registry
from gateway.processes.pool import ProcessPool
from gateway.runs.engine.engine import RunEngine
from gateway.runs.notifications import ChangeNotifier
from gateway.runs.records import ACTIVE, NewRun, RunRecord
from gateway.runs.settings import RunsSettings
from gateway.runs.store import RunStore, open_store
from gateway.settings import JudgeEntry
from tests.support.gateway import Fake, agents, scripts_request

SECONDS = 60.0
"""The longest wait of a test for a run."""


@dataclass
class Runs:
    """A store and its engine."""

    store: RunStore
    engine: RunEngine
    notifier: ChangeNotifier
    settings: RunsSettings

    async def create(self, spec: RunSpec, rows: Iterable[Message] | bytes, *, run_id: str = "") -> str:
        """Creates and starts a run of these rows; returns its id."""
        content = rows if isinstance(rows, bytes) else lines(rows)
        if spec.dataset.WhichOneof("source") is None:
            spec.dataset.content = b""  # as CreateRun stores it: the rows stand beside the spec
        record, _ = self.store.runs.create(
            NewRun(id=run_id or str(uuid.uuid4()), tenant="", spec=spec, content=content)
        )
        await self.engine.submit(record.id)
        return record.id

    async def until(self, run_id: str, holds: Callable[[RunRecord], bool]) -> RunRecord:
        """Waits until a condition holds for a run."""
        async with asyncio.timeout(SECONDS):
            while True:
                run = await asyncio.get_running_loop().run_in_executor(None, self.get, run_id)
                if holds(run):
                    return run
                await asyncio.sleep(0.02)

    async def ended(self, run_id: str) -> RunRecord:
        """Waits for a run to end."""
        return await self.until(run_id, lambda run: run.state not in ACTIVE)

    def get(self, run_id: str) -> RunRecord:
        run = self.store.runs.get(run_id)
        assert run is not None
        return run

    def samples(self, run_id: str) -> Sequence[RunSample]:
        return self.store.samples.page(run_id, after=-1, limit=100_000)

    async def change(self, run_id: str, to: Any) -> None:
        """Changes the state as RunService does, and notifies the engine."""
        assert self.store.runs.change_state(run_id, to, expected=ACTIVE) is not None
        self.notifier.notify(run_id)


def lines(rows: Iterable[Message]) -> bytes:
    """Rows as JSON Lines."""
    return b"".join(MessageToJson(row, indent=None).encode() + b"\n" for row in rows)


def script_rows(count: int, candidates: int = 1) -> list[Message]:
    """Rows with different tasks."""
    rows: list[Message] = []
    for index in range(count):
        row = scripts_request(candidates)
        row.task.id, row.task.goal = f"t{index}", f"Make tea {index}"
        rows.append(row)
    return rows


def scripts_spec(**fields: Any) -> RunSpec:
    """A run of scripts."""
    return RunSpec(**{"scripts": ScriptsRunOptions(), **fields})


@asynccontextmanager
async def judges_of(fakes: Sequence[Fake]) -> AsyncIterator[list[JudgeEntry]]:
    """Serves judges that are functions."""
    async with AsyncExitStack() as stack:
        entries = []
        for fake in fakes:
            server = await stack.enter_async_context(serve(fake.contract(), drain_grace_seconds=0.2))
            entries.append(
                JudgeEntry(role=fake.role, name=fake.name, target=server.target, default=fake.default)
            )
        yield entries


@asynccontextmanager
async def open_runs(url: str, entries: Sequence[JudgeEntry], **settings: Any) -> AsyncIterator[Runs]:
    """Opens a store and an engine."""
    configured = RunsSettings(
        **{"url": url, "drain_timeout_seconds": 1, "outage_timeout_seconds": 0, **settings}
    )
    async with open_registry(entries, calls_per_judge=64) as registry:
        directory = JudgeDirectory(timeout=2)
        timeouts = Timeouts(judge=30, gold_answer=30, reserve=0.2)
        evaluations = Evaluations(registry, directory, timeouts, ProcessPool(0), ProcessPool(0))
        store = open_store(url)
        try:
            notifier = ChangeNotifier()
            engine = RunEngine(configured, store, evaluations, notifier)
            async with engine.open():
                yield Runs(store, engine, notifier, configured)
        finally:
            store.close()


@asynccontextmanager
async def runs_with(url: str, *fakes: Fake, **settings: Any) -> AsyncIterator[Runs]:
    """The same with judges that are functions: those given, and others that pass everything."""
    async with judges_of(agents(*fakes)) as entries, open_runs(url, entries, **settings) as runs:
        yield runs
