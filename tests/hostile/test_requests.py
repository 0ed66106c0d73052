"""Every field of public requests, hostile, at a real gateway: no internal error, and others are served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message

from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import CheckJudgeRequest, ListJudgesRequest
from dramaturg.api.evaluation.v1.judge_directory_service_pb2_grpc import JudgeDirectoryServiceStub
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunSpec
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeCandidate, JudgeRequest
from gateway.runs.settings import RunsSettings
from tests.hostile.inputs import mutations
from tests.support.auth import holder
from tests.support.bombs import GOOD_LINE
from tests.support.fleet import report
from tests.support.gateway import agents
from tests.support.tenants import gateway_of_tenants

HOSTILE, GOOD = holder("team-a", "evaluator"), holder("team-b", "evaluator")
EVALUATION = "/dramaturg.api.evaluation.v1.EvaluationService"
RUNS = "/dramaturg.api.evaluation.v1.RunService"
DEFECTS = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS})
MOST_DELAY_SECONDS = 2.0
"""The longest delay of another tenant's call, on a machine that other tests share."""
MOST_GROWTH_MB = 300


def _spec() -> RunSpec:
    spec = RunSpec(dataset=Dataset(content=GOOD_LINE))
    spec.scripts.SetInParent()
    return spec


REQUESTS: dict[str, Message] = {
    f"{EVALUATION}/EvaluateScripts": EvaluateScriptsRequest(
        task=Task(goal="Make tea"), candidates=[Candidate(id="a", text="1. Boil.")]
    ),
    f"{RUNS}/CreateRun": pb.CreateRunRequest(spec=_spec()),
    f"{RUNS}/GetRun": pb.GetRunRequest(run_id="run"),
    f"{RUNS}/ListRuns": pb.ListRunsRequest(),
    f"{RUNS}/ListSamples": pb.ListSamplesRequest(run_id="run"),
    f"{RUNS}/ListResults": pb.ListResultsRequest(run_id="run"),
    f"{RUNS}/GetReport": pb.GetReportRequest(run_id="run"),
    f"{RUNS}/ExportResults": pb.ExportResultsRequest(run_id="run"),
    "/dramaturg.api.evaluation.v1.JudgeDirectoryService/CheckJudge": CheckJudgeRequest(role="critic"),
    "/dramaturg.api.judging.v1.JudgeService/Judge": JudgeRequest(
        task=Task(goal="Make tea"), candidates=[JudgeCandidate(id="a", text="1. Boil.")]
    ),
}
STREAMS = ("EvaluateScripts", "Judge", "GetReport", "ExportResults")


@asynccontextmanager
async def watched(channel: grpc.aio.Channel) -> AsyncIterator[list[float]]:
    """The delays of another tenant's calls meanwhile."""
    delays: list[float] = []
    stub = JudgeDirectoryServiceStub(channel)

    async def call() -> None:
        while True:
            begun = time.monotonic()
            await stub.ListJudges(ListJudgesRequest(), timeout=60)
            delays.append(time.monotonic() - begun)
            await asyncio.sleep(0.02)

    calls = asyncio.create_task(call())
    try:
        yield delays
    finally:
        calls.cancel()
        (end,) = await asyncio.gather(calls, return_exceptions=True)
    assert isinstance(end, asyncio.CancelledError), end


async def ask(channel: grpc.aio.Channel, method: str, request: Message) -> grpc.StatusCode:
    serialize = type(request).SerializeToString
    metadata = (("dramaturg-role", "critic"),)
    try:
        if method.rpartition("/")[2] in STREAMS:
            async for _ in channel.unary_stream(method, serialize)(request, timeout=60, metadata=metadata):
                pass
        else:
            await channel.unary_unary(method, serialize)(request, timeout=60, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("method", REQUESTS, ids=lambda method: method.rpartition("/")[2])
async def test_no_field_breaks_a_method_or_delays_another_tenant(method: str, tmp_path: Path) -> None:
    runs = RunsSettings(enabled=True, url=f"sqlite:///{tmp_path}/runs.sqlite3", drain_timeout_seconds=0)
    defects: list[str] = []
    async with gateway_of_tenants(tmp_path, (HOSTILE, GOOD), agents(), runs) as (hostile, good):
        await ask(hostile, method, REQUESTS[method])
        before = resident_mb()
        async with watched(good) as delays:
            for label, request in mutations(REQUESTS[method]):
                if request.ByteSize() < 16 << 20:
                    code = await ask(hostile, method, request)
                    if code in DEFECTS:
                        defects.append(f"{label}: {code.name}")
        growth = resident_mb() - before
    report(method=method, longest_wait_s=max(delays, default=0), growth_mb=growth)
    assert not defects
    assert max(delays, default=0) < MOST_DELAY_SECONDS
    assert growth < MOST_GROWTH_MB
