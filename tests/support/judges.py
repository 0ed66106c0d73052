"""What tests of judges share: a generation service that answers as told, and requests."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc

from dramaturg.api.common.v1.provenance_pb2 import CompletionReference, Usage
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.generation.v1 import generation_service_pb2, generation_service_pb2_grpc
from dramaturg.api.generation.v1.generation_service_pb2 import (
    Completion,
    GenerateBatchRequest,
    GenerateBatchResponse,
    GenerateRequest,
    GenerateResponse,
    GetLedgerStatusRequest,
    GetLedgerStatusResponse,
    ListModelsRequest,
    ListModelsResponse,
)
from dramaturg.service.app import App
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError, to_error_status
from dramaturg.service.server import Contract, Server
from tests.support.grpc_servers import server_settings

Reply = Callable[[GenerateRequest], Completion]
OK = generation_service_pb2.COMPLETION_STATUS_OK
TASK = Task(goal="Make a cup of tea", constraints=["without a kettle", "in five minutes"])
STEPS = ("Heat water in a pot.", "Put a tea bag into a cup.", "Pour the water over it.")


def script(*steps: str) -> Script:
    return Script(steps=[Step(text=step) for step in steps])


def candidate(*steps: str, id: str = "a", **fields: Any) -> Candidate:  # noqa: A002
    return Candidate(id=id, script=script(*steps), **fields)


def completion(value: Any, **fields: Any) -> Completion:
    """A completion with an answer in JSON, bought for 10 + 5 tokens."""
    text = json.dumps(value, ensure_ascii=False)
    usage = Usage(prompt_token_count=10, completion_token_count=5, provider_call_count=1)
    call = CompletionReference(
        fingerprint="f" * 64, provider="test", answered_model="test-1", raw_text=text, usage=usage
    )
    return Completion(**{"status": OK, "text": text, "json": text, "calls": [call], "usage": usage, **fields})


def section(verdict: Any, *findings: Mapping[str, Any], reason: str = "Because.") -> dict[str, Any]:
    """The answer to a criterion that is answered by findings."""
    return {"reason": reason, "findings": list(findings), "verdict": verdict}


def items(name: str, verdicts: Sequence[Any], verdict: Any, **fields: Any) -> dict[str, Any]:
    """The answer to a criterion that is answered item by item ("constraint" or "step")."""
    listed = [
        {name: number, "reason": f"About {number}.", "verdict": one, **fields}
        for number, one in enumerate(verdicts, start=1)
    ]
    return {f"{name}s": listed, "verdict": verdict}


def all_pass(request: GenerateRequest) -> Completion:
    """Passes every criterion asked for, or writes a script, whatever the schema asks."""
    schema = json.loads(request.json_format.schema)["properties"]
    if "steps" in schema:
        return completion({"considerations": "None.", "steps": list(STEPS)})
    text = request.messages[-1].text
    answer: dict[str, Any] = {"walk": "It is fine."}
    for criterion, shape in schema.items():
        if criterion == "walk":
            continue
        members = shape["properties"]
        if "constraints" in members:
            count = text.count("\nConstraint ")
            answer[criterion] = items("constraint", ["pass"] * count, "pass", steps=[])
        elif "steps" in members:
            shown = text[text.index("[BEGIN candidate") : text.index("[END candidate")]
            answer[criterion] = items("step", ["pass"] * shown.count("\nStep "), "pass")
        else:
            answer[criterion] = section("pass")
    return completion(answer)


class FakeGeneration(generation_service_pb2_grpc.GenerationServiceServicer):
    """Answers as ``reply`` says and remembers every request."""

    def __init__(self, reply: Reply = all_pass) -> None:
        self.reply = reply
        self.requests: list[GenerateRequest] = []

    async def Generate(self, request: GenerateRequest, context: Any) -> GenerateResponse:
        self.requests.append(request)
        return GenerateResponse(completion=self.reply(request))

    async def GenerateBatch(
        self, request: GenerateBatchRequest, context: Any
    ) -> AsyncGenerator[GenerateBatchResponse]:
        for index, one in enumerate(request.requests):
            try:
                response = await self.Generate(one, context)
            except ServiceError as error:
                yield GenerateBatchResponse(index=index, error=to_error_status(error))
            else:
                yield GenerateBatchResponse(index=index, completion=response.completion)

    async def ListModels(self, request: ListModelsRequest, context: Any) -> ListModelsResponse:
        return ListModelsResponse(default_model="test-1")

    async def GetLedgerStatus(self, request: GetLedgerStatusRequest, context: Any) -> GetLedgerStatusResponse:
        return GetLedgerStatusResponse()

    @property
    def messages(self) -> list[str]:
        """The texts of the last request's messages."""
        return [message.text for message in self.requests[-1].messages]


@asynccontextmanager
async def serve_generation(generation: FakeGeneration) -> AsyncIterator[str]:
    """Serves it on a free port and yields its target."""
    contract = Contract.make(
        generation_service_pb2.DESCRIPTOR.services_by_name["GenerationService"],
        generation_service_pb2_grpc.add_GenerationServiceServicer_to_server,
        generation,
        name="fake-generation",
        version="1.0.0",
        description="Answers as told.",
    )
    async with Server([contract], server_settings()) as server:
        yield server.target


@asynccontextmanager
async def serve_app(app: App) -> AsyncIterator[grpc.aio.Channel]:
    """Serves a service on a free port and yields a channel to it."""
    async with (
        app.open() as contracts,
        Server(contracts, server_settings()) as server,
        open_channel(server.target) as channel,
    ):
        yield channel
