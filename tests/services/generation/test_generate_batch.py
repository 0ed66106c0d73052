"""GenerateBatch over real gRPC, against a real HTTP server."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.service.errors import from_error_status, from_rpc_error
from tests.support.generation import GOOD, Service, endpoint, generation_service, request
from tests.support.openai_server import Answer, Body, OpenAIServer


def text_of(body: Body) -> str:
    return str(body["messages"][-1]["content"])


def questions(*texts: str, **fields: Any) -> list[pb.GenerateRequest]:
    return [request(text, json_format=False, **fields) for text in texts]


async def answers(
    service: Service, requests: list[pb.GenerateRequest], timeout: float = 20
) -> dict[int, pb.GenerateBatchResponse]:
    stream = service.generation.GenerateBatch(pb.GenerateBatchRequest(requests=requests), timeout=timeout)
    responses = [response async for response in stream]
    by_index = {response.index: response for response in responses}
    assert len(by_index) == len(responses)
    return by_index


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.005)


async def test_every_request_is_answered_by_its_index() -> None:
    async with OpenAIServer(text_of) as server, generation_service(server) as service:
        responses = await answers(service, questions(*(f"q{index}" for index in range(50))))
        assert {index: response.completion.text for index, response in responses.items()} == {
            index: f"q{index}" for index in range(50)
        }
        assert server.calls.total() == 50
        again = await answers(service, questions(*(f"q{index}" for index in range(50))))
        assert server.calls.total() == 50
    assert all(response.completion.usage.cache_hit_count == 1 for response in again.values())


async def test_an_answer_is_sent_as_soon_as_it_is_known() -> None:
    go_on = asyncio.Event()

    async def respond(body: Body) -> str:
        if text_of(body) == "slow":
            await go_on.wait()
        return "answer"

    async with OpenAIServer(respond) as server, generation_service(server) as service:
        stream = service.generation.GenerateBatch(
            pb.GenerateBatchRequest(requests=questions("slow", "one", "two")), timeout=20
        )
        received = []
        async for response in stream:
            received.append(response.index)
            if len(received) == 2:
                go_on.set()
    assert sorted(received[:2]) == [1, 2]
    assert received[2] == 0


async def test_a_request_that_fails_does_not_affect_the_others() -> None:
    def respond(body: Body) -> str | Answer:
        match text_of(body):
            case "rejected":
                return Answer("not like this", status=400)
            case "limited":
                return Answer("slow down", status=429, headers={"Retry-After": "3600"})
            case "cut":
                return Answer("half", finish_reason="length")
        return "answer"

    made = questions("rejected", "fine", "limited", "cut")
    made[2].model = "p0/another"  # the wait that it is asked for holds for its model alone
    made += [pb.GenerateRequest(messages=[pb.Message(text="a role is missing")])]
    async with OpenAIServer(respond) as server, generation_service(server) as service:
        responses = await answers(service, made, timeout=30)
    rejected, limited, invalid = (from_error_status(responses[index].error) for index in (0, 2, 4))
    assert responses[1].completion.text == "answer"
    assert responses[3].completion.status == pb.COMPLETION_STATUS_TRUNCATED
    assert (rejected.code, rejected.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        reasons.ERROR_REASON_PROVIDER_REJECTED,
    )
    assert rejected.metadata == {"provider": "p0", "status": "400"}
    assert "not like this" in rejected.message
    assert (limited.code, limited.reason) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        reasons.ERROR_REASON_PROVIDER_RATE_LIMITED,
    )
    assert limited.retry_after == pytest.approx(3600)
    assert (invalid.code, invalid.metadata) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        {"field": "messages[0].role"},
    )


async def test_a_request_without_time_left_has_its_own_error() -> None:
    async def respond(body: Body) -> str:
        if text_of(body) == "slow":
            await asyncio.Event().wait()
        return "answer"

    async with OpenAIServer(respond) as server, generation_service(server) as service:
        responses = await answers(service, questions("slow", "fast"), timeout=1.0)
    assert responses[1].completion.text == "answer"
    assert from_error_status(responses[0].error).code is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_equal_requests_of_a_batch_are_bought_once() -> None:
    async with OpenAIServer(lambda _: GOOD, latency=0.02) as server, generation_service(server) as service:
        responses = await answers(service, [request() for _ in range(20)])
        assert server.calls.total() == 1
    usages = [response.completion.usage for response in responses.values()]
    assert sum(usage.provider_call_count for usage in usages) == 1
    assert sum(usage.cache_hit_count for usage in usages) == 19


async def test_cancelling_ends_the_calls_that_no_other_caller_waits_for() -> None:
    go_on = asyncio.Event()

    async def respond(_: Body) -> str:
        await go_on.wait()
        return "answer"

    async with OpenAIServer(respond) as server, generation_service(server) as service:
        stream = service.generation.GenerateBatch(
            pb.GenerateBatchRequest(requests=questions("shared", "alone", "alone too"))
        )
        reading = asyncio.create_task(stream.read())
        await until(lambda: server.in_flight == 3)
        other = asyncio.create_task(answers(service, questions("shared", "its own")))
        # Requests of a batch begin in their order: with the second one at the provider, the first one waits.
        await until(lambda: server.in_flight == 4)
        stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        status = pb.LedgerStatus()
        async with asyncio.timeout(20):
            while status.abandoned_call_count != 2:
                status = (await service.generation.GetLedgerStatus(pb.GetLedgerStatusRequest())).status
        go_on.set()
        assert [(await other)[index].completion.text for index in range(2)] == ["answer", "answer"]
        assert server.calls.total() == 4


async def test_batches_beyond_the_limit_are_refused_before_they_start() -> None:
    go_on = asyncio.Event()

    async def respond(_: Body) -> str:
        await go_on.wait()
        return "answer"

    async with (
        OpenAIServer(respond) as server,
        generation_service(providers={"p": endpoint(server)}, max_batch_requests=200) as service,
    ):
        first = asyncio.create_task(answers(service, questions(*map(str, range(150)))))
        await until(lambda: server.in_flight > 0)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await answers(service, questions(*map(str, range(200, 251))))
        error = from_rpc_error(raised.value)
        assert error.reason == reasons.ERROR_REASON_OVERLOADED
        assert error.metadata["limit"] == "200"
        fitting = asyncio.create_task(answers(service, questions(*map(str, range(200, 250)))))
        go_on.set()
        assert len(await first) == 150
        assert len(await fitting) == 50
        await answers(service, questions(*map(str, range(200))))
        assert server.calls.total() == 250


async def test_a_batch_of_nothing_is_refused() -> None:
    async with generation_service() as service:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await answers(service, [])
    assert from_rpc_error(raised.value).metadata["field"] == "requests"
