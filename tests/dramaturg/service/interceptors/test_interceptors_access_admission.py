"""Items of a batch count against the calls that a server takes at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest
from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import from_rpc_error
from dramaturg.testing import serve
from tests.support.grpc_servers import arities, call_arity, synthesize_request

LIMIT = 5
batches = pytest.mark.parametrize("method", ["UnaryUnary", "UnaryStream"])


def batch(items: int) -> SynthesizeRequest:
    """A request with so many items."""
    request = synthesize_request()
    del request.candidates[0].script.steps[:]
    for number in range(items):
        request.candidates[0].script.steps.add(text=f"Step {number}.")
    return request


def count_steps(request: SynthesizeRequest) -> int:
    return len(request.candidates[0].script.steps)


class Work:
    """Work that ends when the test says so."""

    def __init__(self) -> None:
        self.entered = asyncio.Semaphore(0)
        self.released = asyncio.Event()

    async def __call__(self) -> None:
        self.entered.release()
        await self.released.wait()


@asynccontextmanager
async def weighed(work: Work, methods: Sequence[str]) -> AsyncIterator[grpc.aio.Channel]:
    """Serves methods whose requests have items."""
    contract = replace(arities(work), weights=dict.fromkeys(methods, count_steps))
    settings: dict[str, Any] = {"max_concurrent_calls": LIMIT, "overload_retry_seconds": 3}
    async with serve(contract, **settings) as server, open_channel(server.target) as channel:
        yield channel


@batches
async def test_a_batch_is_shed_where_its_items_exceed_the_limit_together_with_others(method: str) -> None:
    work = Work()
    async with weighed(work, [method]) as channel:
        first = asyncio.create_task(call_arity(channel, method, batch(3)))
        await work.entered.acquire()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call_arity(channel, method, batch(3))
        error = from_rpc_error(raised.value)
        assert (error.code, error.reason) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            reasons.ERROR_REASON_OVERLOADED,
        )
        assert (error.metadata, error.retry_after) == ({"limit": "5", "items": "3"}, 3.0)
        second = asyncio.create_task(call_arity(channel, method, batch(2)))
        await work.entered.acquire()
        work.released.set()
        await asyncio.gather(first, second)
        await call_arity(channel, method, batch(LIMIT))


@batches
async def test_a_batch_that_exceeds_the_limit_alone_is_not_to_be_tried_again(method: str) -> None:
    async with weighed(Work(), [method]) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call_arity(channel, method, batch(LIMIT + 1))
    error = from_rpc_error(raised.value)
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.metadata == {"limit": "5", "items": "6"}
    assert error.retry_after is None


async def test_calls_of_other_methods_count_as_one_item() -> None:
    work = Work()
    async with weighed(work, ["UnaryStream"]) as channel:
        calls = [asyncio.create_task(call_arity(channel, "UnaryUnary", batch(3))) for _ in range(LIMIT)]
        for _ in calls:
            await work.entered.acquire()
        with pytest.raises(grpc.aio.AioRpcError):
            await call_arity(channel, "UnaryStream", batch(1))
        work.released.set()
        await asyncio.gather(*calls)


async def test_a_batch_that_its_caller_leaves_frees_its_places() -> None:
    work = Work()
    async with weighed(work, ["UnaryStream"]) as channel:
        call = asyncio.create_task(call_arity(channel, "UnaryStream", batch(LIMIT)))
        await work.entered.acquire()
        call.cancel()
        work.released.set()
        async with asyncio.timeout(20):
            while True:
                try:
                    await call_arity(channel, "UnaryStream", batch(LIMIT))
                except grpc.aio.AioRpcError:
                    continue
                break
