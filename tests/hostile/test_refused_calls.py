"""Calls that are refused: nothing of their requests stays in memory until a search for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunRequest
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunSpec
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.testing import until
from gateway.runs.settings import RunsSettings
from tests.support.auth import holder
from tests.support.bombs import GOOD_LINE, line_bomb
from tests.support.gateway import agents
from tests.support.tenants import gateway_of_tenants

CALLER = holder("team-a", "operator")
EVALUATION, RUNS = "dramaturg.api.evaluation.v1.EvaluationService", "dramaturg.api.evaluation.v1.RunService"


def spec(content: bytes, **fields: Any) -> RunSpec:
    made = RunSpec(dataset=Dataset(content=content), **fields)
    made.scripts.SetInParent()
    return made


def scripts(**fields: Any) -> EvaluateScriptsRequest:
    candidates = [Candidate(id="a", text="1. Boil.")]
    return EvaluateScriptsRequest(task=Task(goal="Make tea"), candidates=candidates, **fields)


UNKNOWN = JudgeSelection(role="critic", judge="unknown")
REFUSED = {
    "a run of blank lines": (RUNS, "CreateRun", pb.CreateRunRequest(spec=spec(line_bomb(5)))),
    "a run of no judge": (RUNS, "CreateRun", pb.CreateRunRequest(spec=spec(GOOD_LINE, judges=[UNKNOWN]))),
    "an estimate": (EVALUATION, "EstimateRun", EstimateRunRequest(spec=spec(line_bomb(5)))),
    "an evaluation of no judge": (EVALUATION, "EvaluateScripts", scripts(judges=[UNKNOWN])),
    "an evaluation of no task": (EVALUATION, "EvaluateScripts", EvaluateScriptsRequest()),
}


@pytest.fixture
def without_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def end(channel: Any, service: str, method: str, request: Message) -> grpc.StatusCode:
    """Makes a call with bytes, so that all messages in memory are the server's."""
    content, name = request.SerializeToString(), f"/{service}/{method}"
    try:
        if method == "EvaluateScripts":
            async for _ in channel.unary_stream(name)(content, timeout=60):
                pass
        else:
            await channel.unary_unary(name)(content, timeout=60)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.usefixtures("without_garbage_collection")
@pytest.mark.parametrize("case", REFUSED)
async def test_the_request_is_freed_at_once(tmp_path: Path, case: str) -> None:
    service, method, request = REFUSED[case]
    settings = RunsSettings(enabled=True, url=f"sqlite:///{tmp_path}/runs.sqlite3", drain_timeout_seconds=0)
    kinds = (type(request), RunSpec)
    before = sum(isinstance(one, kinds) for one in gc.get_objects())
    async with gateway_of_tenants(tmp_path, [CALLER], agents(), settings) as (channel,):
        assert await end(channel, service, method, request) is grpc.StatusCode.INVALID_ARGUMENT
        await until(lambda: sum(isinstance(one, kinds) for one in gc.get_objects()) <= before)
