"""Interceptors of gRPC that are given to a channel see the calls as it makes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.api.generation.v1 import generation_service_pb2, generation_service_pb2_grpc
from dramaturg.api.generation.v1.generation_service_pb2 import (
    GenerateRequest,
    GenerateResponse,
    MessageRole,
)
from dramaturg.service import context
from dramaturg.service.auth.caller import on_behalf_of
from dramaturg.service.channel import open_channel
from dramaturg.service.server import Contract, Server
from dramaturg.service.settings import ChannelSettings, ServerSettings
from dramaturg.testing import serve
from tests.support.grpc_servers import (
    METHODS,
    arities,
    call_arity,
    serve_synthesizer,
    silent,
    synthesize_request,
    synthesizer,
)
from tests.support.telemetry import counted, traced


async def test_calls_are_balanced_over_all_replicas() -> None:
    calls = [0, 0]

    def counting(index: int) -> Any:
        async def count(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
            calls[index] += 1
            return SynthesizeResponse()

        return count

    async with (
        serve(synthesizer(counting(0))) as first,
        serve(synthesizer(counting(1))) as second,
        open_channel(f"ipv4:{first.target},{second.target}") as channel,
    ):
        stub = SynthesizeServiceStub(channel)
        async with asyncio.timeout(20):
            while not all(calls):  # until both are connected
                await stub.Synthesize(synthesize_request())
        calls[:] = [0, 0]
        for _ in range(20):
            await stub.Synthesize(synthesize_request())
    assert calls == [10, 10]


async def test_a_server_that_is_not_there_fails_fast() -> None:
    async with open_channel("127.0.0.1:1") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asyncio.wait_for(SynthesizeServiceStub(channel).Synthesize(synthesize_request()), 15)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_connections_are_a_channels_own() -> None:
    """Shared ones, the default of gRPC, let a new channel fail while an old one backs off."""
    peers: list[str] = []

    async def note(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        peers.append(servicer_context.peer())
        return SynthesizeResponse()

    async with (
        serve(synthesizer(note)) as server,
        open_channel(server.target) as first,
        open_channel(server.target) as second,
    ):
        for channel in (first, second, first):
            await SynthesizeServiceStub(channel).Synthesize(synthesize_request())
    assert peers[0] == peers[2] != peers[1]


async def test_a_server_that_comes_back_is_found_by_the_retries() -> None:
    server = Server([synthesizer(silent)], ServerSettings.loopback())
    await server.start()
    async with open_channel(server.target) as channel:
        stub = SynthesizeServiceStub(channel)
        await stub.Synthesize(synthesize_request())
        await server.drain()
        again = Server([synthesizer(silent)], ServerSettings.loopback(port=server.port))
        call = asyncio.ensure_future(stub.Synthesize(synthesize_request(), timeout=20, wait_for_ready=True))
        await again.start()
        await call
        await again.drain()


@pytest.mark.parametrize(("sent_before", "attempts"), [(0, 2), (1, 1)])
async def test_a_stream_is_made_again_where_it_is_lost_before_its_first_message_alone(
    sent_before: int, attempts: int
) -> None:
    made = 0

    async def stream(request: bytes, servicer_context: Any) -> AsyncIterator[bytes]:
        nonlocal made
        made += 1
        for _ in range(sent_before):
            yield b"a message"
        if made == 1:
            await servicer_context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
        yield b"the last"

    handlers: dict[str, Any] = {"Stream": grpc.unary_stream_rpc_method_handler(stream)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.Service", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    received: list[bytes] = []
    async with open_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_stream("/a.Service/Stream")
        with nullcontext() if attempts > 1 else pytest.raises(grpc.aio.AioRpcError) as raised:
            received.extend([message async for message in call(b"")])
    await server.stop(0)
    assert made == attempts
    assert received == ([b"the last"] if attempts > 1 else [])
    if raised is not None:
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_stubs_of_a_channel_share_what_calls_a_method() -> None:
    """Code that makes a stub for each call would bind all methods of the service each time."""
    async with open_channel("127.0.0.1:1") as channel:
        first, second = SynthesizeServiceStub(channel), SynthesizeServiceStub(channel)
    assert first.Synthesize is second.Synthesize


async def test_a_proxy_for_the_web_is_not_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with serve_synthesizer(silent) as stub:
        await stub.Synthesize(synthesize_request(), timeout=10)


async def test_the_channels_own_timeout_bounds_a_call() -> None:
    async def forever(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        await asyncio.Event().wait()
        return SynthesizeResponse()

    settings = ChannelSettings(timeout_seconds=0.2)
    async with serve(synthesizer(forever)) as server, open_channel(server.target, settings) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await SynthesizeServiceStub(channel).Synthesize(synthesize_request())
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_no_time_left_is_a_deadline_exceeded_without_a_call() -> None:
    calls = 0

    async def count(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        nonlocal calls
        calls += 1
        return SynthesizeResponse()

    async with serve_synthesizer(count) as stub:
        late = context.RequestContext(request_id="r", deadline=0.0)
        with context.scope(late), pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Synthesize(synthesize_request())
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert calls == 0


async def test_a_callers_own_metadata_stays() -> None:
    seen: dict[str, Any] = {}

    async def note(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        seen.update(dict(servicer_context.invocation_metadata()))
        return SynthesizeResponse()

    async with serve_synthesizer(note) as stub:
        with context.scope(context.RequestContext(request_id="outer")):
            await stub.Synthesize(
                synthesize_request(), metadata=grpc.aio.Metadata(("a", "1"), ("x-request-id", "mine"))
            )
    assert (seen["a"], seen["x-request-id"]) == ("1", "mine")


async def test_metadata_of_the_channel_comes_after_the_callers_own() -> None:
    seen: list[tuple[str, Any]] = []

    async def note(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        seen.extend(servicer_context.invocation_metadata())
        return SynthesizeResponse()

    given = (("a", "1"), ("b-bin", b"\x00"), ("a", "2"))
    async with serve_synthesizer(note) as stub:
        with context.scope(context.RequestContext(request_id="outer")), on_behalf_of("team-a"):
            await stub.Synthesize(synthesize_request(), metadata=given)
    added = ("x-request-id", "outer"), ("x-dramaturg-tenant", "team-a")
    assert [(pair[0], pair[1]) for pair in seen if pair[0] != "user-agent"] == [*given, *added]


async def test_request_id_is_made_once_and_crosses_two_hops() -> None:
    seen: list[str] = []

    async def note(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        current = context.current()
        assert current is not None
        seen.append(current.request_id)
        return SynthesizeResponse()

    async with serve(synthesizer(note)) as second, open_channel(second.target) as inner:

        async def forward(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
            await note(request, servicer_context)
            return await SynthesizeServiceStub(inner).Synthesize(request)

        async with serve_synthesizer(forward) as stub:
            await stub.Synthesize(synthesize_request())
            await stub.Synthesize(synthesize_request())
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert seen[0] != seen[2]


async def test_request_id_of_a_message_is_taken_where_the_metadata_has_none() -> None:
    seen: list[str] = []

    class Generation(generation_service_pb2_grpc.GenerationServiceServicer):
        async def Generate(self, request: GenerateRequest, servicer_context: Any) -> GenerateResponse:
            current = context.current()
            assert current is not None
            seen.append(current.request_id)
            return GenerateResponse()

    contract = Contract.make(
        generation_service_pb2.DESCRIPTOR.services_by_name["GenerationService"],
        generation_service_pb2_grpc.add_GenerationServiceServicer_to_server,
        Generation(),  # type: ignore[abstract] # the other methods are not called
        name="generation",
        version="1",
        description="For tests.",
    )
    request = GenerateRequest()
    request.messages.add(role=MessageRole.MESSAGE_ROLE_USER, text="hi")
    async with serve(contract) as server, open_channel(server.target) as channel:
        stub = generation_service_pb2_grpc.GenerationServiceStub(channel)
        await stub.Generate(request)
        with context.scope(context.RequestContext(request_id="from-the-metadata")):
            await stub.Generate(request)
        with context.scope(context.RequestContext(request_id="no good")):
            await stub.Generate(request)
    assert seen[1] == "from-the-metadata"
    assert [len(seen[0]), len(seen[2])] == [32, 32]


def test_the_deadline_of_a_context_never_goes_below_zero() -> None:
    assert context.remaining() is None
    with context.scope(context.RequestContext(request_id="r", deadline=0.0)):
        assert context.remaining() == 0.0
    assert context.current() is None


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
