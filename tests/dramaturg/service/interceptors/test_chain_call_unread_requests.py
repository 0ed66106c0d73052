"""A caller that still writes when its call is refused gets the status of the refusal.

It is a client of gRPC for Python, which reports INTERNAL where a call ends while it writes.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.service.contract import Answered
from dramaturg.service.errors import ServiceError, from_rpc_error, invalid
from dramaturg.service.interceptors import chain as calls
from dramaturg.service.server import Contract, Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import serve
from tests.support.auth import holder, token_settings
from tests.support.grpc_servers import ARITIES, arities, call_object, synthesize_request

COUNT = 30
OK = synthesize_request()
LARGE = synthesize_request(topic="x" * 200)
LARGE.candidates[0].text = "x" * 1_000_000  # above the contract's limit


class Refusing:
    """Refuses a call before it reads a request."""

    async def StreamUnary(self, requests: Any, context: Any) -> SynthesizeResponse:
        raise invalid("topic", "is refused")


class ClosedGate:
    """Lets no call pass."""

    async def start(self, method: str, tenant: str) -> None:
        pass

    def passing(self, method: str, items: int, context: Any) -> AbstractAsyncContextManager[Answered]:
        raise ServiceError(
            grpc.StatusCode.RESOURCE_EXHAUSTED, reasons.ERROR_REASON_QUOTA_EXHAUSTED, "no call is left"
        )


def refusing() -> Contract:
    contract = arities(_nothing)

    def add(_: Any, server: grpc.aio.Server) -> None:
        handler = grpc.stream_unary_rpc_method_handler(
            Refusing().StreamUnary, SynthesizeRequest.FromString, SynthesizeResponse.SerializeToString
        )
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(ARITIES, {"StreamUnary": handler})]
        )

    return replace(contract, add=add)


async def _nothing() -> None:
    pass


async def refusal(target: str, request: SynthesizeRequest = OK, count: int = COUNT) -> ServiceError:
    """The error of a call that writes messages of a megabyte until it ends."""
    data = request.SerializeToString() if request is not OK else b"\x0a" * (1 << 20)
    async with grpc.aio.insecure_channel(target) as channel:
        call: Any = channel.stream_unary(f"/{ARITIES}/StreamUnary")(timeout=30)
        try:
            for _ in range(count):
                await call.write(data)
            await call.done_writing()
            await call
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        return from_rpc_error(
            grpc.aio.AioRpcError(
                await call.code(),
                await call.initial_metadata(),
                await call.trailing_metadata(),
                await call.details(),
            )
        )


async def written_messages(call: Any, most: int) -> int:
    """Writes messages until the call ends; returns their number."""
    written = 0
    try:
        while written < most:
            await call.write(bytes(1 << 20))
            written += 1
        await call
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return written
    raise AssertionError("the call was not refused")


@pytest.mark.parametrize("case", ["handler", "gate", "admission", "validation"])
async def test_a_refusal_reaches_a_caller_that_writes(case: str) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await ended.wait()

    contract = refusing() if case == "handler" else arities(wait)
    if case == "gate":
        contract = replace(contract, gate=ClosedGate())
    request = LARGE if case == "validation" else OK
    expected = {
        "handler": (grpc.StatusCode.INVALID_ARGUMENT, reasons.ERROR_REASON_FIELD_INVALID),
        "gate": (grpc.StatusCode.RESOURCE_EXHAUSTED, reasons.ERROR_REASON_QUOTA_EXHAUSTED),
        "admission": (grpc.StatusCode.RESOURCE_EXHAUSTED, reasons.ERROR_REASON_OVERLOADED),
        "validation": (grpc.StatusCode.INVALID_ARGUMENT, reasons.ERROR_REASON_FIELD_INVALID),
    }[case]
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            serve(contract, **({"max_concurrent_calls": 1} if case == "admission" else {}))
        )
        if case == "admission":
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.target))
            waiting = call_object(channel, "UnaryUnary", OK)
            stack.callback(waiting.cancel)
            await begun.wait()
        error = await refusal(server.target, request)
    assert (error.code, error.reason) == expected


async def test_a_caller_without_an_identity_is_told_so_while_it_writes(tmp_path: Path) -> None:
    auth = token_settings(tmp_path, holder("team-a", "operator"))
    contract = replace(arities(_nothing), permission="serve")
    async with Server([contract], ServerSettings.loopback(drain_grace_seconds=0), auth) as server:
        error = await refusal(server.target, count=8)
    assert (error.code, error.reason) == (
        grpc.StatusCode.UNAUTHENTICATED,
        reasons.ERROR_REASON_UNAUTHENTICATED,
    )


@pytest.mark.parametrize("limit", ["bytes", "seconds", "calls"])
async def test_the_rest_of_a_refused_call_is_read_within_limits(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call ends, whichever status a caller then sees that writes on."""
    monkeypatch.setattr(calls, "MAX_SECONDS", 0.2 if limit == "seconds" else 60)
    if limit == "bytes":
        monkeypatch.setattr(calls, "MAX_BYTES", 4 << 20)
    if limit == "calls":
        monkeypatch.setattr("dramaturg.service.interceptors.chain.MAX_CALLS", 0)
    begun = time.monotonic()
    async with serve(refusing()) as server, grpc.aio.insecure_channel(server.target) as channel:
        call: Any = channel.stream_unary(f"/{ARITIES}/StreamUnary")(timeout=60)
        written = await written_messages(call, 0 if limit == "seconds" else 100)
    assert time.monotonic() - begun < 20
    assert written < 40


async def test_callers_without_an_identity_have_calls_of_their_own_to_drop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_SECONDS", 60)
    monkeypatch.setattr("dramaturg.service.interceptors.chain.MAX_UNAUTHENTICATED_CALLS", 0)
    auth = token_settings(tmp_path, holder("team-a", "operator"))
    contract = replace(arities(_nothing), permission="serve")
    async with (
        Server([contract], ServerSettings.loopback(drain_grace_seconds=0), auth) as server,
        grpc.aio.insecure_channel(server.target) as channel,
    ):
        call: Any = channel.stream_unary(f"/{ARITIES}/StreamUnary")(timeout=60)
        assert await written_messages(call, 100) < 40
