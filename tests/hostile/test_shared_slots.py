"""Two tenants hold every slot that reads large datasets: the calls of a third one do not wait for them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunRequest
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_SUCCEEDED, Dataset, RunSpec
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.service.errors import from_rpc_error
from dramaturg.testing import until
from gateway.runs.service import preflight
from gateway.runs.settings import RunsSettings
from tests.support.auth import holder
from tests.support.bombs import GOOD_LINE, line_bomb
from tests.support.gateway import agents
from tests.support.processes import worker_processes
from tests.support.tenants import gateway_of_tenants

HOLDERS = [holder(name, "operator") for name in ("team-a", "team-b", "team-c")]
SECONDS = 150.0
BOMB_MB = 1000
LARGE = GOOD_LINE * 30_000


@asynccontextmanager
async def gateway(folder: Path, **runs: Any) -> AsyncIterator[Sequence[grpc.aio.Channel]]:
    settings = RunsSettings(
        enabled=True, url=f"sqlite:///{folder}/runs.sqlite3", drain_timeout_seconds=0, **runs
    )
    async with gateway_of_tenants(folder, HOLDERS, agents(), settings) as channels:
        yield channels


def call(channel: grpc.aio.Channel, method: str, content: bytes) -> Any:
    spec = RunSpec(dataset=Dataset(content=content))
    spec.scripts.SetInParent()
    if method == "EstimateRun":
        return EvaluationServiceStub(channel).EstimateRun(EstimateRunRequest(spec=spec), timeout=SECONDS)
    return RunServiceStub(channel).CreateRun(pb.CreateRunRequest(spec=spec), timeout=SECONDS)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("method", ["CreateRun", "EstimateRun"])
async def test_a_dataset_of_blank_lines_is_refused_and_holds_up_nobody(tmp_path: Path, method: str) -> None:
    bomb = line_bomb(BOMB_MB)
    async with gateway(tmp_path) as (*hostile, quiet):
        attacks = [call(channel, method, bomb) for channel in hostile for _ in range(2)]
        await until(lambda: len(worker_processes()) == len(hostile), SECONDS)
        await call(quiet, method, GOOD_LINE)
        ends = await asyncio.gather(*attacks, return_exceptions=True)
    for end in ends:
        assert isinstance(end, grpc.aio.AioRpcError)
        error = from_rpc_error(end)
        assert error.code is grpc.StatusCode.INVALID_ARGUMENT
        ((field, words),) = error.violations
        if method == "CreateRun":
            assert field == "spec.dataset.content"
            assert f"has more than {preflight.READ_BLANK_LINES:,} blank lines before" in words
            assert "begin it with a valid row" in words
        else:
            assert field == "spec.dataset"
            assert "has more than 1,000,000 blank lines" in words


@contextmanager
def standing_still() -> Iterator[None]:
    """Stops the processes that read datasets within a ``with`` block."""
    stopped = worker_processes()
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in stopped:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("method", ["CreateRun", "EstimateRun"])
async def test_a_small_dataset_does_not_wait_for_the_check_of_large_ones(tmp_path: Path, method: str) -> None:
    async with gateway(tmp_path) as (*hostile, quiet):
        attacks = [call(channel, method, LARGE) for channel in hostile]
        await until(lambda: len(worker_processes()) == len(hostile), SECONDS)
        with standing_still():
            await call(quiet, method, GOOD_LINE)
            assert not any(attack.done() for attack in attacks)
        await asyncio.gather(*attacks)


@pytest.mark.timeout(180)
async def test_a_run_of_a_small_dataset_does_not_wait_for_runs_of_large_ones(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (*hostile, quiet):
        await asyncio.gather(*(call(channel, "CreateRun", LARGE) for channel in hostile))
        await until(lambda: len(worker_processes()) == len(hostile), SECONDS)
        with standing_still():
            run = (await call(quiet, "CreateRun", GOOD_LINE)).run
            async with asyncio.timeout(SECONDS):
                async for event in RunServiceStub(quiet).WatchRun(pb.WatchRunRequest(run_id=run.id)):
                    run = event.run if event.HasField("run") else run
        assert run.state == RUN_STATE_SUCCEEDED
