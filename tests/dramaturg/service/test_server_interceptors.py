"""Interceptors of gRPC that are given to a server run inside its own."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest
from dramaturg.service import context
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import from_rpc_error, invalid
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from tests.support.grpc_servers import METHODS, arities, call_arity, synthesize_request

each_arity = pytest.mark.parametrize("method", [name for name, _, _ in METHODS])
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


async def nothing() -> None:
    pass


class Noting(grpc.aio.ServerInterceptor):
    """Notes each call, and the request id that it has by then."""

    def __init__(self, name: str, notes: list[tuple[str, str]]) -> None:
        self._name = name
        self._notes = notes

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Any:
        handler = await continuation(details)
        requests, responses = handler.request_streaming, handler.response_streaming
        arity = f"{'stream' if requests else 'unary'}_{'stream' if responses else 'unary'}"
        behaviour = getattr(handler, arity)

        def note(request: Any, servicer_context: Any) -> Any:
            request_context = context.current()
            assert request_context is not None
            assert isinstance(request, SynthesizeRequest) or handler.request_streaming
            self._notes.append((self._name, request_context.request_id))
            return behaviour(request, servicer_context)

        make: Any = getattr(grpc, f"{arity}_rpc_method_handler")
        return make(note, handler.request_deserializer, handler.response_serializer)


class Refusing(grpc.aio.ServerInterceptor):
    """Refuses every call with an error of the runtime."""

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Any:
        async def refuse(request: Any, servicer_context: Any) -> Any:
            raise invalid("quota", "is used up")

        handler = await continuation(details)
        return grpc.unary_unary_rpc_method_handler(
            refuse, handler.request_deserializer, handler.response_serializer
        )


@each_arity
async def test_they_run_in_order_inside_the_request_context(method: str) -> None:
    notes: list[tuple[str, str]] = []
    interceptors = [Noting("first", notes), Noting("second", notes)]
    server = Server([arities(nothing)], ServerSettings.loopback(), interceptors=interceptors)
    async with server, open_channel(server.target) as channel:
        for number in range(2):
            with context.scope(context.RequestContext(request_id=f"request-{number}")):
                count = await call_arity(channel, method, *[synthesize_request()] * 3)
                assert count == (3 if method.endswith("Stream") else 1)
    expected = [(name, f"request-{number}") for number in range(2) for name in ("first", "second")]
    assert notes == expected


@each_arity
async def test_a_request_that_breaks_a_limit_does_not_reach_their_handlers(method: str) -> None:
    notes: list[tuple[str, str]] = []
    server = Server([arities(nothing)], ServerSettings.loopback(), interceptors=[Noting("only", notes)])
    async with server, open_channel(server.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call_arity(channel, method, synthesize_request(goal=" "))
    assert from_rpc_error(raised.value).code is grpc.StatusCode.INVALID_ARGUMENT
    assert method.startswith("Stream") or not notes


async def test_an_error_that_one_raises_is_mapped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = Server([arities(nothing)], ServerSettings.loopback(), interceptors=[Refusing()])
    async with server, open_channel(server.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call_arity(channel, "UnaryUnary", synthesize_request())
    error = from_rpc_error(raised.value)
    assert [violation.field for violation in error.violations] == ["quota"]
    (line,) = [vars(record)["fields"] for record in caplog.records if record.name == "dramaturg.access"]
    assert line["code"] == "INVALID_ARGUMENT"
