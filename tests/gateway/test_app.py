"""The time limits of a gateway in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_CANCELLED, Dataset
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.service.context import DEADLINE_METADATA
from dramaturg.service.settings import ServerSettings, SettingsError
from dramaturg.testing import serve
from gateway.app import App
from gateway.settings import GatewaySettings
from tests.support.engines import lines, script_rows, scripts_spec
from tests.support.gateway import Fake, all_pass, scripts_request
from tests.support.processes import ForkedService

LIMIT_SECONDS = 2.0


@asynccontextmanager
async def gateway(folder: Path, **answers: Any) -> AsyncIterator[grpc.aio.Channel]:
    """A gateway whose calls end after 2 s; yields a channel without deadlines of its own."""
    fakes = [Fake(role, answers.get(role)) for role in ("synthesize", "critic", "execute", "commonsense")]
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(serve(fake.contract())) for fake in fakes]
        tables = [
            f'[[gateway.judges]]\nrole = "{fake.role}"\nname = "fake"\ntarget = "{server.target}"\n'
            for fake, server in zip(fakes, servers, strict=True)
        ]
        configuration = folder / "dramaturg.toml"
        configuration.write_text("[gateway]\njudge_timeout_seconds = 1.9\n" + "".join(tables))
        process = ForkedService(
            folder,
            {
                "DRAMATURG_CONFIG": str(configuration),
                "DRAMATURG_SERVER_DEFAULT_DEADLINE_SECONDS": str(LIMIT_SECONDS),
                "DRAMATURG_SERVER_MAXIMUM_DEADLINE_SECONDS": str(LIMIT_SECONDS),
                "DRAMATURG_RUNS_ENABLED": "true",
                "DRAMATURG_RUNS_URL": f"sqlite:///{folder}/runs.sqlite3",
            },
            "serve",
            "gateway",
        )
        await process.start()
        try:
            yield await stack.enter_async_context(grpc.aio.insecure_channel(process.target))
        finally:
            await process.kill()


async def hanging(request: object) -> object:
    return await asyncio.Event().wait()


async def test_a_stream_of_a_run_outlasts_the_time_limit_of_the_server(tmp_path: Path) -> None:
    async with gateway(tmp_path, critic=hanging) as channel:
        runs = RunServiceStub(channel)
        spec = scripts_spec(dataset=Dataset(content=lines(script_rows(1))))
        run_id = (await runs.CreateRun(pb.CreateRunRequest(spec=spec))).run.id
        stream = runs.WatchRun(pb.WatchRunRequest(run_id=run_id))
        assert dict(await stream.initial_metadata()).get(DEADLINE_METADATA) is None

        async def read() -> list[int]:
            return [event.run.state async for event in stream if event.HasField("run")]

        reading = asyncio.create_task(read())
        done, _ = await asyncio.wait([reading], timeout=2 * LIMIT_SECONDS)
        assert not done, "the stream ends at the time limit of other calls"
        await runs.CancelRun(pb.CancelRunRequest(run_id=run_id))
        async with asyncio.timeout(30):
            states = await reading
        assert states[-1] == RUN_STATE_CANCELLED


async def test_a_call_without_a_deadline_waits_for_a_judge_and_says_its_limit(tmp_path: Path) -> None:
    async def slow(request: object) -> object:
        await asyncio.sleep(1)
        return all_pass("critic")

    async with gateway(tmp_path, critic=slow) as channel:
        call = EvaluationServiceStub(channel).EvaluateScripts(scripts_request(1))
        assert dict(await call.initial_metadata())[DEADLINE_METADATA] == "2"
        result = [event async for event in call][-1].result
    assert {verdict.outcome for verdict in result.candidates[0].verdicts} == {1}


async def test_a_default_deadline_below_the_timeout_of_judges_is_refused() -> None:
    async with App(GatewaySettings(judge_timeout_seconds=300)).open() as contracts:
        with pytest.raises(SettingsError, match=r"DEFAULT_DEADLINE_SECONDS=120 .* 300 s"):
            async with serve(*contracts, default_deadline_seconds=120):
                pass


def test_the_default_deadline_covers_the_default_timeout_of_judges() -> None:
    default = ServerSettings.model_fields["default_deadline_seconds"].default
    assert default > GatewaySettings.model_fields["judge_timeout_seconds"].default
