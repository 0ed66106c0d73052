from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest
from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.service import context
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError, from_rpc_error, invalid
from dramaturg.service.interceptors.chain import Call
from dramaturg.service.interceptors.limits import Limit
from dramaturg.service.logs import JsonFormatter
from dramaturg.service.server import Contract
from dramaturg.service.threads import TenantThreads, gather_all
from dramaturg.testing import serve, until
from tests.support.grpc_servers import ARITIES, METHODS, arities, call_arity, call_object, synthesize_request

NAMES = [name for name, _, _ in METHODS]
every_arity = pytest.mark.parametrize("method", NAMES)


async def nothing() -> None:
    pass


async def forever() -> None:
    await asyncio.Event().wait()


async def read_all(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


def replaced(servicer: Any) -> Contract:
    """The contract of every arity, implemented for UnaryStream alone; its responses are requests."""
    contract = arities(nothing)

    def add(_: Any, server: grpc.aio.Server) -> None:
        handler = grpc.unary_stream_rpc_method_handler(
            servicer.UnaryStream, SynthesizeRequest.FromString, SynthesizeRequest.SerializeToString
        )
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(ARITIES, {"UnaryStream": handler})]
        )

    return replace(contract, add=add)


async def failure(
    method: str,
    work: Callable[[], Awaitable[None]],
    *requests: SynthesizeRequest,
    timeout: float | None = None,
    **settings: Any,
) -> ServiceError:
    """What a call of the method fails with."""
    async with serve(arities(work), **settings) as server, open_channel(server.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call_arity(channel, method, *(requests or [synthesize_request()]), timeout=timeout)
    return from_rpc_error(raised.value)


@every_arity
async def test_a_call_passes_all_interceptors(method: str) -> None:
    requests = [synthesize_request() for _ in range(3)]
    async with serve(arities(nothing)) as server, open_channel(server.target) as channel:
        count = await call_arity(channel, method, *requests)
    assert count == (3 if method.endswith("Stream") else 1)


@pytest.fixture
def without_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_garbage_collection")
@every_arity
async def test_an_ended_call_and_its_messages_are_freed_at_once(method: str) -> None:
    async with serve(arities(nothing)) as server, open_channel(server.target) as channel:
        await call_arity(channel, method, synthesize_request())
        await until(lambda: not any(isinstance(one, Call) for one in gc.get_objects()))


async def refuse_in_a_thread() -> None:
    def refuse() -> None:
        raise invalid("task", "is refused")

    async def again() -> None:
        await TenantThreads()("team-a", refuse)

    await gather_all([nothing(), again()])


@pytest.mark.usefixtures("without_garbage_collection")
@every_arity
async def test_the_messages_of_a_refused_call_are_freed_at_once(method: str) -> None:
    given = synthesize_request()
    async with serve(arities(refuse_in_a_thread)) as server, open_channel(server.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await call_arity(channel, method, given)
        await until(
            lambda: [one for one in gc.get_objects() if isinstance(one, SynthesizeRequest)] == [given]
        )


@every_arity
async def test_a_service_error_keeps_its_reason(method: str) -> None:
    async def refuse() -> None:
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            reasons.ERROR_REASON_ROLE_UNBOUND,
            "no",
            metadata={"role": "critic"},
        )

    error = await failure(method, refuse)
    assert (error.code, error.reason_name) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "ERROR_REASON_ROLE_UNBOUND",
    )
    assert error.metadata == {"role": "critic"}


@every_arity
async def test_unhandled_exception_does_not_leak(method: str, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("secret detail")

    error = await failure(method, fail)
    assert (error.code, error.message) == (grpc.StatusCode.INTERNAL, "internal error")
    assert error.reason == reasons.ERROR_REASON_INTERNAL
    assert "secret detail" in caplog.text, "the traceback is logged"


@every_arity
async def test_invalid_messages_are_refused_before_the_handler(method: str) -> None:
    worked = False

    async def work() -> None:
        nonlocal worked
        worked = True

    good, bad = synthesize_request(), synthesize_request(goal=" ", topic="x" * 201)
    error = await failure(method, work, *([good, bad] if method.startswith("Stream") else [bad]))
    assert [violation.field for violation in error.violations] == ["task.goal", "task.topic"]
    assert not worked


@every_arity
async def test_bytes_that_are_no_message_are_an_invalid_argument(method: str) -> None:
    async with serve(arities(nothing)) as server, grpc.aio.insecure_channel(server.target) as channel:
        _, streams_requests, streams_responses = METHODS[NAMES.index(method)]
        kinds = (channel.unary_unary, channel.unary_stream, channel.stream_unary, channel.stream_stream)
        call: Any = kinds[NAMES.index(method)](f"/{ARITIES}/{method}")
        damaged = b"\x0a\xff"
        answer = call(iter([damaged]) if streams_requests else damaged)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await (answer.read() if streams_responses else answer)
    error = from_rpc_error(raised.value)
    assert (error.code, error.reason) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        reasons.ERROR_REASON_FIELD_INVALID,
    )


@every_arity
async def test_a_call_without_a_deadline_gets_the_servers(method: str) -> None:
    async with (
        serve(arities(forever), default_deadline_seconds=0.1, maximum_deadline_seconds=60) as server,
        grpc.aio.insecure_channel(server.target) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call_arity(channel, method, synthesize_request())
    assert from_rpc_error(raised.value).reason == reasons.ERROR_REASON_DEADLINE_EXCEEDED


@every_arity
async def test_a_deadline_beyond_the_maximum_is_capped(method: str) -> None:
    error = await failure(
        method, forever, timeout=60, default_deadline_seconds=0.1, maximum_deadline_seconds=0.1
    )
    assert error.reason == reasons.ERROR_REASON_DEADLINE_EXCEEDED


@every_arity
async def test_a_limit_that_the_server_sets_is_in_the_initial_metadata(method: str) -> None:
    async def limit(timeout: float | None) -> Any:
        async with (
            serve(arities(nothing), default_deadline_seconds=5, maximum_deadline_seconds=7.5) as server,
            grpc.aio.insecure_channel(server.target) as channel,
        ):
            call = call_object(channel, method, synthesize_request(), timeout=timeout)
            return dict(await call.initial_metadata()).get(context.DEADLINE_METADATA)

    assert [await limit(seconds) for seconds in (None, 60, 6)] == ["5", "7.5", None]


@every_arity
async def test_an_unlimited_method_ends_at_the_deadline_of_the_caller_alone(method: str) -> None:
    async def work() -> None:
        assert context.remaining() is None
        await asyncio.sleep(0.3)

    contract = replace(arities(work), unlimited=frozenset(NAMES))
    limits = {"default_deadline_seconds": 0.1, "maximum_deadline_seconds": 0.1}
    async with (
        serve(contract, **limits) as server,
        open_channel(server.target) as channel,
    ):
        await call_arity(channel, method, synthesize_request(), timeout=math.inf)
    error = await failure(method, forever, timeout=0.5)
    assert error.code is grpc.StatusCode.DEADLINE_EXCEEDED


@every_arity
async def test_a_deadline_too_short_is_refused_before_any_work(method: str) -> None:
    worked = False

    async def work() -> None:
        nonlocal worked
        worked = True

    error = await failure(method, work, timeout=5, minimum_deadline_seconds=10)
    assert error.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert error.reason == reasons.ERROR_REASON_DEADLINE_TOO_SHORT
    assert error.metadata["floor_seconds"] == "10"
    assert not worked


async def test_a_timeout_of_the_handlers_own_is_not_the_deadline() -> None:
    async def impatient() -> None:
        async with asyncio.timeout(0.01):
            await forever()

    error = await failure("UnaryUnary", impatient)
    assert error.reason == reasons.ERROR_REASON_INTERNAL


@every_arity
async def test_the_call_too_many_is_refused_and_the_next_one_served(method: str) -> None:
    released, entered = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        entered.set()
        await released.wait()

    async with (
        serve(arities(work), max_concurrent_calls=1, overload_retry_seconds=3) as server,
        open_channel(server.target) as channel,
    ):
        first = asyncio.create_task(call_arity(channel, method, synthesize_request()))
        await entered.wait()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call_arity(channel, method, synthesize_request())
        error = from_rpc_error(raised.value)
        assert (error.code, error.reason_name) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "ERROR_REASON_OVERLOADED",
        )
        assert (error.metadata, error.retry_after) == ({"limit": "1"}, 3.0)
        released.set()
        await first
        await call_arity(channel, method, synthesize_request())


@every_arity
async def test_a_cancelled_call_frees_its_place(method: str) -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        entered.set()
        try:
            await forever()
        finally:
            left.set()

    async with serve(arities(work), max_concurrent_calls=1) as server, open_channel(server.target) as channel:
        for _ in range(2):
            # The call itself: grpc.aio leaves one open whose reader is cancelled before its initial metadata.
            call = call_object(channel, method, synthesize_request())
            await asyncio.wait_for(entered.wait(), 10)
            call.cancel()
            await asyncio.wait_for(left.wait(), 10)
            entered.clear()
            left.clear()


async def test_a_reader_slower_than_the_servers_deadline_still_gets_a_status() -> None:
    """A task that is cancelled while gRPC sends for it ends without one: the caller would wait forever."""

    class Endless:
        async def UnaryStream(self, request: Any, context: Any) -> Any:
            while True:
                yield request

    request = synthesize_request(topic="x" * 200)
    async with (
        serve(replaced(Endless()), default_deadline_seconds=0.2) as server,
        grpc.aio.insecure_channel(server.target) as channel,
    ):
        multi: Any = channel.unary_stream(
            f"/{ARITIES}/UnaryStream", SynthesizeRequest.SerializeToString, SynthesizeRequest.FromString
        )
        call = multi(request)
        await call.read()
        await asyncio.sleep(0.3)  # beyond the deadline, while the server waits for this reader
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asyncio.wait_for(read_all(call), 10)
    assert from_rpc_error(raised.value).reason == reasons.ERROR_REASON_DEADLINE_EXCEEDED


async def test_a_call_that_is_cancelled_at_its_deadline_stays_cancelled() -> None:
    """A cancellation by others is not turned into DEADLINE_EXCEEDED."""

    async def work() -> None:
        with Limit(0.01):
            try:
                await forever()
            except asyncio.CancelledError:
                task.cancel()
                raise

    task = asyncio.create_task(work())
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()


async def test_a_stream_that_the_caller_leaves_while_it_waits_to_write_is_closed() -> None:
    """A cancelled stream may be suspended at a ``yield``: its cleanup must still run."""
    closed = asyncio.Event()

    class Endless:
        async def UnaryStream(self, request: Any, context: Any) -> Any:
            try:
                while True:
                    yield request
            finally:
                closed.set()

    async with (
        serve(replaced(Endless()), max_concurrent_calls=1) as server,
        open_channel(server.target) as channel,
    ):
        multi: Any = channel.unary_stream(
            f"/{ARITIES}/UnaryStream",
            SynthesizeRequest.SerializeToString,
            SynthesizeRequest.FromString,
        )
        call = multi(synthesize_request(id="x" * 200))
        await call.read()
        call.cancel()
        await asyncio.wait_for(closed.wait(), 10)


async def test_an_unknown_method_has_a_reason() -> None:
    async with serve(arities(nothing)) as server, open_channel(server.target) as channel:
        absent: Any = channel.unary_unary("/dramaturg.tests.v1.ArityService/Absent")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await absent(b"")
    assert from_rpc_error(raised.value).reason == reasons.ERROR_REASON_NOT_IMPLEMENTED


async def test_an_abort_of_the_servicer_passes_unchanged() -> None:
    class Aborting:
        async def UnaryUnary(self, request: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.DATA_LOSS, "by hand")

        UnaryStream = StreamUnary = StreamStream = UnaryUnary

    contract = arities(nothing)
    aborting = type(contract)(contract.descriptor, contract.add, Aborting(), contract.identity)
    async with serve(aborting) as server, open_channel(server.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call_arity(channel, "UnaryUnary", synthesize_request())
    assert (raised.value.code(), raised.value.details()) == (grpc.StatusCode.DATA_LOSS, "by hand")


def access_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(JsonFormatter().format(r)) for r in caplog.records if r.name == "dramaturg.access"]


@every_arity
async def test_every_call_is_logged_once_without_its_contents(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def refuse() -> None:
        raise invalid("x", "is refused")

    async with serve(arities(refuse)) as server, open_channel(server.target) as channel:
        with (
            context.scope(context.RequestContext(request_id="request-7")),
            pytest.raises(grpc.aio.AioRpcError),
        ):
            await call_arity(channel, method, synthesize_request(goal="Rob the bank"))
    (line,) = access_lines(caplog)
    assert line["method"] == f"/dramaturg.tests.v1.ArityService/{method}"
    assert (line["code"], line["reason"]) == ("INVALID_ARGUMENT", "ERROR_REASON_FIELD_INVALID")
    assert line["request_id"] == "request-7"
    assert line["seconds"] >= 0
    assert "127.0.0.1" in line["peer"]
    assert "bank" not in caplog.text


async def test_a_cancelled_call_is_logged_as_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    entered = asyncio.Event()

    async def work() -> None:
        entered.set()
        await forever()

    async with serve(arities(work)) as server, open_channel(server.target) as channel:
        call = asyncio.create_task(call_arity(channel, "UnaryUnary", synthesize_request()))
        await entered.wait()
        call.cancel()
        await until(lambda: bool(access_lines(caplog)))
    assert [line["code"] for line in access_lines(caplog)] == ["CANCELLED"]


@pytest.mark.parametrize("sent", ["", "x" * 129, 'a"b', "ü"])
async def test_a_request_id_that_is_unsafe_in_logs_is_replaced(sent: str) -> None:
    seen: list[str] = []

    async def note() -> None:
        request = context.current()
        assert request is not None
        seen.append(request.request_id)

    async with serve(arities(note)) as server, grpc.aio.insecure_channel(server.target) as channel:
        multi: Any = channel.unary_unary(
            "/dramaturg.tests.v1.ArityService/UnaryUnary", SynthesizeRequest.SerializeToString, bytes
        )
        if sent.isascii():
            await multi(synthesize_request(), metadata=(("x-request-id", sent),))
        else:
            await multi(synthesize_request(), metadata=(("x-request-id-bin", sent.encode()),))
    assert len(seen) == 1
    assert seen[0] != sent
    assert len(seen[0]) == 32
