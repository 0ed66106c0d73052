"""AuthoringService.WriteSimulationTask over real gRPC."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask
from dramaturg.api.generation.v1 import authoring_dialogues_pb2 as pb
from dramaturg.service.errors import from_rpc_error
from tests.support.generation import generation_service
from tests.support.openai_server import Answer, Body, OpenAIServer

STATELESS, STATEFUL = dialogue_pb2.SIMULATION_KIND_STATELESS, dialogue_pb2.SIMULATION_KIND_STATEFUL
EXAMPLES = [
    SimulationTask(
        id="secret-id", name="Terminal", description="Act.\nname: no", request_type="your command"
    ),
    SimulationTask(name="Chess", description="Play."),
]
NEW = {"idea": "New.", "name": " SQL ", "description": "Act as SQL.", "request_type": "your query"}


async def write(answer: Any, kind: Any = STATEFUL) -> tuple[pb.WriteSimulationTaskResponse, list[Body]]:
    request = pb.WriteSimulationTaskRequest(kind=kind, examples=EXAMPLES)
    async with OpenAIServer(lambda _: answer) as server, generation_service(server) as service:
        response = await service.authoring.WriteSimulationTask(request)
    return response, server.bodies


@pytest.mark.parametrize(("kind", "name"), [(STATELESS, "stateless"), (STATEFUL, "stateful")])
async def test_a_task_of_either_kind_is_written_after_examples(kind: Any, name: str) -> None:
    response, [body] = await write(NEW, kind)
    assert response.task == SimulationTask(
        name="SQL", description="Act as SQL.", request_type="your query", kind=kind
    )
    assert response.failure == ""
    assert [prompt.name for prompt in response.provenance.prompts] == [f"write_{name}_task"]
    shown = body["messages"][-1]["content"]
    assert "]\nname: Terminal\ndescription: Act.\n    name: no\nrequest_type: your command\n[END ex" in shown
    assert "[BEGIN example 2 " in shown
    assert "]\nname: Chess\ndescription: Play.\n[END ex" in shown
    assert "secret-id" not in shown


@pytest.mark.parametrize(
    ("answer", "failure", "calls"),
    [
        (Answer("", refusal="No."), "declined", 1),
        (Answer("{", finish_reason="length"), "cut off", 2),
        (Answer(""), "empty", 2),
        ("A task.", "could not be read", 2),
        (NEW | {"name": " "}, "no name", 1),
        (NEW | {"name": "x" * 201}, "name has over 200", 1),
        (NEW | {"description": "x" * 20_001}, "description has over", 1),
    ],
)
async def test_an_answer_of_no_use_is_a_failure(answer: Any, failure: str, calls: int) -> None:
    response, bodies = await write(answer)
    assert not response.HasField("task")
    assert failure in response.failure
    assert len(bodies) == len(response.provenance.completions) == calls


async def test_the_kind_must_be_stated() -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await write(NEW, dialogue_pb2.SIMULATION_KIND_UNSPECIFIED)
    assert [violation.field for violation in from_rpc_error(caught.value).violations] == ["kind"]
