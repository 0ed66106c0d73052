"""Many calls, so many at once."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptRequest, WriteScriptResponse
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.service.channel import open_channel
from dramaturg_research.concurrent_calls import call_each


async def test_answers_stand_in_the_order_of_the_requests_and_only_so_many_are_under_way() -> None:
    under_way = peak = 0
    gates = [asyncio.Event() for _ in range(6)]

    async def call(number: int) -> str:
        nonlocal under_way, peak
        under_way += 1
        peak = max(peak, under_way)
        # Each pair ends in reverse order.
        if number % 2 == 0:
            await gates[number].wait()
        else:
            gates[number - 1].set()
        under_way -= 1
        return str(number)

    assert await call_each(range(6), call, str, 2) == list("012345")
    assert peak == 2


async def test_a_call_that_fails_is_an_answer() -> None:
    async with open_channel("127.0.0.1:1") as channel:
        author = AuthoringServiceStub(channel)
        (answer,) = await call_each(
            [WriteScriptRequest()],
            lambda request: author.WriteScript(request, timeout=5),
            lambda why: WriteScriptResponse(failure=why),
            1,
        )
    assert answer.failure.startswith(grpc.StatusCode.UNAVAILABLE.name)


async def test_what_is_no_failed_call_is_not_hidden() -> None:
    async def call(number: int) -> str:
        raise ValueError(number)

    with pytest.raises(ExceptionGroup):
        await call_each([1], call, str, 1)
