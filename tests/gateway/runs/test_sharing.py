"""A gateway with two tenants' runs works for both equally, however many runs each has."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import RunLimits
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.testing import until
from gateway.runs.engine import orchestrator
from gateway.runs.records import RunRecord
from gateway.runs.settings import RunsSettings
from tests.support.auth import holder
from tests.support.engines import lines, script_rows, scripts_spec
from tests.support.gateway import Fake, agents, all_pass
from tests.support.tenants import gateway_of_tenants

if TYPE_CHECKING:  # the generated types of asynchronous stubs exist for type checkers alone
    from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceAsyncStub

MANY, ONE = holder("many", "operator"), holder("one", "operator")
SLOTS = 8
SAMPLES = 40


class Critic:
    """Is closed at first; then takes a fifth of a second, and notes of whose tasks it was asked."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting: Counter[str] = Counter()
        self.done: list[str] = []

    async def __call__(self, request: Any) -> Any:
        self.waiting[request.task.topic] += 1
        await self.open.wait()
        await asyncio.sleep(0.2)
        self.done.append(request.task.topic)
        return all_pass("critic")


@asynccontextmanager
async def gateway(folder: Path, critic: Critic, **runs: Any) -> AsyncIterator[dict[str, RunServiceAsyncStub]]:
    """A gateway that tells tenants apart; RunService by the name of each."""
    settings = RunsSettings(
        enabled=True, url=f"sqlite:///{folder}/runs.sqlite3", drain_timeout_seconds=0, **runs
    )
    async with gateway_of_tenants(folder, (MANY, ONE), agents(Fake("critic", critic)), settings) as channels:
        yield dict(zip(("many", "one"), map(RunServiceStub, channels), strict=True))


async def create(stub: RunServiceAsyncStub, topic: str, samples: int, priority: int = 0) -> str:
    rows: list[Any] = script_rows(samples)
    for row in rows:
        row.task.topic = topic
    spec = scripts_spec(limits=RunLimits(max_concurrent_samples=2 * SLOTS, priority=priority))
    spec.dataset.content = lines(rows)
    return str((await stub.CreateRun(pb.CreateRunRequest(spec=spec))).run.id)


async def succeeded(stub: RunServiceAsyncStub, run_id: str) -> None:
    """Waits until a run has."""
    async with asyncio.timeout(60):
        while True:
            run = (await stub.GetRun(pb.GetRunRequest(run_id=run_id))).run
            if run.state == run_pb2.RUN_STATE_SUCCEEDED:
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "bounds",
    [{}, {"max_concurrent_batches": 4, "max_concurrent_runs": 3}],
    ids=["samples are scarce", "so are the batches and runs worked on"],
)
async def test_ten_urgent_runs_of_one_get_no_more_than_the_only_run_of_another(
    bounds: dict[str, int], tmp_path: Path
) -> None:
    critic = Critic()
    async with gateway(tmp_path, critic, max_concurrent_samples=SLOTS, **bounds) as stubs:
        for _ in range(10):
            await create(stubs["many"], "many", SAMPLES, priority=100)
        await until(lambda: critic.waiting["many"] == SLOTS, 60)
        await create(stubs["one"], "one", SAMPLES)
        critic.open.set()
        await until(lambda: critic.done.count("one") == SAMPLES, 120)
        done = list(critic.done)
    # From the first sample of the one to its last: before it there was nothing to share with.
    shared = Counter(done[done.index("one") : len(done) - done[::-1].index("one")])
    assert shared["one"] == SAMPLES
    assert SAMPLES / 1.5 < shared["many"] < SAMPLES * 1.5


async def test_datasets_that_take_long_hold_up_no_run_that_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    critic, read, reading = Critic(), orchestrator.read_samples, threading.Event()
    slow: list[str] = []

    def read_slowly(run: RunRecord, *args: Any) -> bool:
        if run.tenant == "many":
            slow.append(run.id)
            reading.wait(120)
        return read(run, *args)

    monkeypatch.setattr(orchestrator, "read_samples", read_slowly)
    async with gateway(tmp_path, critic) as stubs:
        try:
            run_id = await create(stubs["one"], "one", 3)
            await until(lambda: critic.waiting["one"] == 3, 60)
            for _ in range(10):
                await create(stubs["many"], "many", 1)
            await until(lambda: len(slow) == 1, 60)
            critic.open.set()
            await succeeded(stubs["one"], run_id)
            # The next dataset of another tenant is read meanwhile.
            await succeeded(stubs["one"], await create(stubs["one"], "one", 3))
            assert len(slow) == 1
        finally:
            reading.set()
        await until(lambda: critic.done.count("many") == 10, 60)


async def test_paused_runs_of_one_do_not_keep_anothers_from_beginning(tmp_path: Path) -> None:
    critic = Critic()
    async with gateway(tmp_path, critic, max_concurrent_runs=2) as stubs:
        paused = [await create(stubs["many"], "many", 2) for _ in range(4)]
        await until(lambda: critic.waiting["many"] == 2 * len(paused), 60)
        for run_id in paused:
            await stubs["many"].PauseRun(pb.PauseRunRequest(run_id=run_id))
        await create(stubs["one"], "one", 2)
        critic.open.set()
        await until(lambda: critic.done.count("one") == 2, 60)
