"""Interceptors of gRPC that are given to a channel see the calls as it makes them."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from dramaturg.service import context
from dramaturg.service.channel import open_channel
from dramaturg.testing import serve
from tests.support.grpc_servers import METHODS, arities, call_arity, synthesize_request
from tests.support.telemetry import counted, traced

each_arity = pytest.mark.parametrize("method", [name for name, _, _ in METHODS])


async def nothing() -> None:
    pass


class Noting(
    grpc.aio.UnaryUnaryClientInterceptor,
    grpc.aio.UnaryStreamClientInterceptor,
    grpc.aio.StreamUnaryClientInterceptor,
    grpc.aio.StreamStreamClientInterceptor,
):
    """Notes each call of any arity."""

    def __init__(self, name: str = "", notes: list[str] | None = None) -> None:
        self.name = name
        self.notes = [] if notes is None else notes
        self.calls: list[grpc.aio.ClientCallDetails] = []

    async def _note(self, continuation: Any, details: Any, request: Any) -> Any:
        self.calls.append(details)
        self.notes.append(self.name)
        return await continuation(details, request)

    intercept_unary_unary: Any = _note
    intercept_unary_stream: Any = _note
    intercept_stream_unary: Any = _note
    intercept_stream_stream: Any = _note


class UnaryAlone(grpc.aio.UnaryUnaryClientInterceptor):
    """Changes the timeout of unary calls."""

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        changed = grpc.aio.ClientCallDetails(
            details.method, 0.2, details.metadata, details.credentials, details.wait_for_ready
        )
        return await continuation(changed, request)


@each_arity
async def test_one_sees_calls_of_every_arity_with_deadline_and_metadata(method: str) -> None:
    noting = Noting()
    async with (
        serve(arities(nothing)) as server,
        open_channel(server.target, interceptors=[noting]) as channel,
    ):
        with context.scope(context.RequestContext(request_id="request-7")):
            count = await call_arity(channel, method, *[synthesize_request()] * 3, timeout=7)
    assert count == (3 if method.endswith("Stream") else 1)
    (details,) = noting.calls
    assert details.timeout == 7
    assert ("x-request-id", "request-7") in list(details.metadata or ())


@each_arity
async def test_several_run_in_order(method: str) -> None:
    notes: list[str] = []
    interceptors = [Noting("first", notes), Noting("second", notes)]
    async with (
        serve(arities(nothing)) as server,
        open_channel(server.target, interceptors=interceptors) as channel,
    ):
        await call_arity(channel, method, synthesize_request())
    assert notes == ["first", "second"]


async def test_a_changed_timeout_is_sent() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    async with (
        serve(arities(forever)) as server,
        open_channel(server.target, interceptors=[UnaryAlone()]) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asyncio.wait_for(call_arity(channel, "UnaryUnary", synthesize_request()), 10)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@each_arity
async def test_intercepted_calls_are_observed(method: str) -> None:
    with counted() as counts, traced() as spans:
        async with (
            serve(arities(nothing)) as server,
            open_channel(server.target, interceptors=[Noting()]) as channel,
        ):
            await call_arity(channel, method, synthesize_request())
    assert counts.now().by("grpc_client_call_duration_seconds_count", "grpc_status") == {"OK": 1}
    assert [span.attributes["rpc.response.status_code"] for span in spans] == ["OK", "OK"]
    assert len({span.trace_id for span in spans}) == 1


async def test_an_object_that_is_no_interceptor_is_refused() -> None:
    with pytest.raises(ValueError, match="Interceptor"):
        open_channel("127.0.0.1:1", interceptors=[object()])  # type: ignore[list-item]
