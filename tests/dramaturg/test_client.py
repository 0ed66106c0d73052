from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.evaluation.v1 import (
    evaluation_service_pb2,
    evaluation_service_pb2_grpc,
    judge_directory_service_pb2,
    judge_directory_service_pb2_grpc,
)
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    CheckJudgeRequest,
    CheckJudgeResponse,
    Judge,
    ListJudgesRequest,
    ListJudgesResponse,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    EvaluateScriptsRequest,
    EvaluateScriptsResponse,
    ScriptsResult,
)
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.service.server import Contract
from dramaturg.testing import serve

JUDGE = Judge(name="llm", role="critic")
REQUEST = EvaluateScriptsRequest(
    task=Task(goal="Bake a cake"), candidates=[Candidate(id="a", text="1. Bake.")]
)


class Evaluations(evaluation_service_pb2_grpc.EvaluationServiceServicer):
    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    async def EvaluateScripts(
        self, request: EvaluateScriptsRequest, context: Any
    ) -> AsyncIterator[EvaluateScriptsResponse]:
        endless = request.task.id == "endless"
        try:
            # A caller may leave before the event is sent.
            yield EvaluateScriptsResponse(accepted=EvaluationAccepted(assessment_count=3))
            if endless:
                await asyncio.Event().wait()
        finally:
            if endless:
                self.cancelled.set()
        yield EvaluateScriptsResponse(result=ScriptsResult(task=request.task))


class Directory(judge_directory_service_pb2_grpc.JudgeDirectoryServiceServicer):
    async def ListJudges(self, request: ListJudgesRequest, context: Any) -> ListJudgesResponse:
        return ListJudgesResponse(judges=[JUDGE] if request.role in {"", JUDGE.role} else [])

    async def CheckJudge(self, request: CheckJudgeRequest, context: Any) -> CheckJudgeResponse:
        if request.judge != JUDGE.name:
            raise ServiceError(
                grpc.StatusCode.INVALID_ARGUMENT,
                reasons.ERROR_REASON_JUDGE_UNKNOWN,
                "no such judge",
                metadata={"role": request.role, "judge": request.judge},
            )
        return CheckJudgeResponse(judge=JUDGE)

    async def ListModelWaits(self, request: Any, context: Any) -> Any:
        raise NotImplementedError


def evaluations() -> Evaluations:
    return Evaluations()  # type: ignore[abstract]  # the methods that are not there answer UNIMPLEMENTED


@asynccontextmanager
async def gateway(served: Evaluations) -> AsyncIterator[DramaturgClient]:
    make = partial(Contract.make, name="gateway", version="1.0.0", description="A gateway for tests.")
    contracts = [
        make(
            evaluation_service_pb2.DESCRIPTOR.services_by_name["EvaluationService"],
            evaluation_service_pb2_grpc.add_EvaluationServiceServicer_to_server,
            served,
        ),
        make(
            judge_directory_service_pb2.DESCRIPTOR.services_by_name["JudgeDirectoryService"],
            judge_directory_service_pb2_grpc.add_JudgeDirectoryServiceServicer_to_server,
            Directory(),  # type: ignore[abstract]  # the methods that are not there answer UNIMPLEMENTED
        ),
    ]
    async with serve(*contracts) as server, DramaturgClient(server.target) as client:
        yield client


async def test_events_come_as_they_happen() -> None:
    async with gateway(evaluations()) as client:
        events = [event.WhichOneof("event") async for event in client.evaluate_scripts(REQUEST)]
    assert events == ["accepted", "result"]


async def test_a_refused_request_names_every_violation() -> None:
    async with gateway(evaluations()) as client:
        with pytest.raises(ServiceError) as raised:
            async for _ in client.evaluate_scripts(EvaluateScriptsRequest()):
                pass
    assert raised.value.reason == reasons.ERROR_REASON_FIELD_INVALID
    assert [violation.field for violation in raised.value.violations] == ["task", "candidates"]


async def test_leaving_an_evaluation_cancels_it() -> None:
    scripted, endless = evaluations(), EvaluateScriptsRequest()
    endless.CopyFrom(REQUEST)
    endless.task.id = "endless"
    async with gateway(scripted) as client:
        events = client.evaluate_scripts(endless)
        await anext(events)
        await events.aclose()
        await asyncio.wait_for(scripted.cancelled.wait(), 10)


async def test_judges_are_listed_and_checked() -> None:
    async with gateway(evaluations()) as client:
        assert list(await client.list_judges()) == [JUDGE]
        assert list(await client.list_judges("execute")) == []
        assert await client.check_judge("critic", "llm") == JUDGE


async def test_an_unknown_judge_is_a_typed_error() -> None:
    async with gateway(evaluations()) as client:
        with pytest.raises(ServiceError) as raised:
            await client.check_judge("critic", "strict")
    assert raised.value.reason_name == "ERROR_REASON_JUDGE_UNKNOWN"
    assert raised.value.metadata == {"role": "critic", "judge": "strict"}


async def test_a_gateway_that_is_not_there_is_a_typed_error() -> None:
    async with DramaturgClient("127.0.0.1:1") as client:
        with pytest.raises(ServiceError) as raised:
            await client.list_judges(timeout=10)
    assert raised.value.code is grpc.StatusCode.UNAVAILABLE
