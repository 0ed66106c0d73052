""""""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import grpc
import jsonschema
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.generation.v1.generation_service_pb2 import (
    MESSAGE_ROLE_USER,
    Completion,
    GenerateBatchRequest,
    GenerateBatchResponse,
    GenerateRequest,
    GetLedgerStatusRequest,
    ListModelsRequest,
    Message,
)
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError, from_error_status, from_rpc_error
from dramaturg.testing import FakeGeneration, completion, serve
from dramaturg.testing.generation import smallest_instance

FAILURE = ServiceError(
    grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE, "the provider is down"
)


def request(text: str = "Is it good?", schema: object = None) -> GenerateRequest:
    made = GenerateRequest(messages=[Message(role=MESSAGE_ROLE_USER, text=text)])
    if schema is not None:
        made.json_format.name, made.json_format.schema = "verdict", json.dumps(schema)
    return made


async def ask(generation: FakeGeneration, *requests: GenerateRequest) -> list[Completion]:
    async with serve(generation.contract()) as server, open_channel(server.target) as channel:
        stub = GenerationServiceStub(channel)
        return [(await stub.Generate(one)).completion for one in requests]


async def batch(generation: FakeGeneration, *requests: GenerateRequest) -> list[GenerateBatchResponse]:
    async with serve(generation.contract()) as server, open_channel(server.target) as channel:
        stream = GenerationServiceStub(channel).GenerateBatch(GenerateBatchRequest(requests=requests))
        return [response async for response in stream]


async def test_a_script_is_answered_in_order_and_requests_are_recorded() -> None:
    generation = FakeGeneration([{"met": True}, "text", completion("cut", parse_error="cut off")])
    first, second, third = await ask(generation, request("1"), request("2"), request("3"))
    assert json.loads(first.json) == {"met": True}
    assert first.usage.provider_call_count == 1
    assert (second.text, second.HasField("json")) == ("text", False)
    assert third.parse_error == "cut off"
    assert [one.messages[0].text for one in generation.requests] == ["1", "2", "3"]
    assert generation.messages == ["3"]


async def test_an_error_of_the_script_fails_its_request() -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(FakeGeneration([FAILURE]), request())
    assert from_rpc_error(caught.value).reason == error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE


async def test_a_script_that_ends_says_so() -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="no more answers"):
        await ask(FakeGeneration(["one"]), request(), request())


async def test_each_request_of_a_batch_is_answered_or_fails_alone() -> None:
    generation = FakeGeneration(["a", FAILURE, "c"])
    responses = {one.index: one for one in await batch(generation, request("1"), request("2"), request("3"))}
    assert [responses[index].WhichOneof("result") for index in range(3)] == [
        "completion",
        "error",
        "completion",
    ]
    assert from_error_status(responses[1].error).reason == FAILURE.reason
    assert (generation.batch_sizes, len(generation.requests)) == ([3], 3)


async def test_answers_of_a_batch_come_as_they_are_ready() -> None:
    released = asyncio.Event()

    async def reply(asked: GenerateRequest) -> str:
        if asked.messages[0].text == "slow":
            await released.wait()
        return asked.messages[0].text

    generation = FakeGeneration(reply)
    async with serve(generation.contract()) as server, open_channel(server.target) as channel:
        both = GenerateBatchRequest(requests=[request("slow"), request("fast")])
        stream = GenerationServiceStub(channel).GenerateBatch(both).__aiter__()
        assert (await anext(stream)).completion.text == "fast"
        released.set()
        assert (await anext(stream)).completion.text == "slow"


async def test_a_stream_breaks_once() -> None:
    generation = FakeGeneration(break_after=1)
    with pytest.raises(grpc.aio.AioRpcError, match="breaks"):
        await batch(generation, request(), request())
    assert len(await batch(generation, request(), request())) == 2
    assert generation.batch_sizes == [2, 2]


async def test_the_requests_of_a_batch_are_delayed_side_by_side() -> None:
    started = time.monotonic()
    await batch(FakeGeneration(delay=1), *[request()] * 100)
    # One after the other they take longer than a test may.
    assert time.monotonic() - started >= 1


async def test_without_a_script_the_answer_fits_the_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"reason": {"type": "string"}, "verdict": {"enum": ["pass", "fail"]}},
        "required": ["reason", "verdict"],
    }
    with_schema, without = await ask(FakeGeneration(), request(schema=schema), request())
    assert json.loads(with_schema.json) == {"reason": "-", "verdict": "pass"}
    assert without.text == "An answer."


async def test_models_and_ledger_can_be_asked_for() -> None:
    async with serve(FakeGeneration().contract()) as server, open_channel(server.target) as channel:
        stub = GenerationServiceStub(channel)
        assert (await stub.ListModels(ListModelsRequest())).default_model == "fake-1"
        await stub.GetLedgerStatus(GetLedgerStatusRequest())


STEP = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
SCHEMAS: list[dict[str, Any]] = [
    {"const": "x"},
    {"enum": ["pass", "fail"]},
    {"type": "string", "minLength": 4},
    {"type": ["number", "null"], "minimum": 0.5},
    {"type": "boolean"},
    {"type": "null"},
    {"type": "array", "items": STEP, "minItems": 2},
    {"anyOf": [{"type": "null"}, {"type": "string"}]},
    {
        "type": "object",
        "properties": {"s": {"$ref": "#/$defs/step"}},
        "required": ["s"],
        "$defs": {"step": STEP},
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_an_instance_fits_its_schema(schema: dict[str, Any]) -> None:
    jsonschema.validate(smallest_instance(schema), schema)
