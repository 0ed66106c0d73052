"""A server that drains, and clients that know it alone of the replicas behind a name.

Interceptors of gRPC that are given to a server run inside its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_status import rpc_status

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.service import channel as channels
from dramaturg.service import context
from dramaturg.service import server as serving
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import from_rpc_error, invalid
from dramaturg.service.server import Contract, Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import serve, until
from tests.support.grpc_servers import METHODS, arities, call_arity, silent, synthesize_request, synthesizer
from tests.support.name_server import name_server

Status = health_pb2.HealthCheckResponse


async def nothing() -> None:
    pass


async def identity_of(target: str, contract: str) -> Any:
    async with open_channel(target) as channel:
        response = await IdentityServiceStub(channel).GetIdentity(GetIdentityRequest(contract=contract))
    return response.identity


async def test_identity_is_the_only_contracts_or_the_one_named() -> None:
    async with serve(synthesizer(silent, name="my-synthesizer")) as server:
        for name in ("", "dramaturg.api.agents.v1.SynthesizeService"):
            identity = await identity_of(server.target, name)
            assert identity.name == "my-synthesizer"
            assert identity.contract == "dramaturg.api.agents.v1.SynthesizeService"


@pytest.mark.parametrize("contract", ["", "dramaturg.api.agents.v1.ExecuteService"])
async def test_identity_of_a_contract_that_is_not_clear_is_refused(contract: str) -> None:
    async with serve(synthesizer(silent), arities(nothing)) as server:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await identity_of(server.target, contract)
    error = from_rpc_error(raised.value)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in error.violations] == ["contract"]
    assert "SynthesizeService" in error.violations[0].description


def test_a_contract_names_its_capabilities() -> None:
    made = Contract.make(
        synthesizer(silent).descriptor,
        synthesizer(silent).add,
        None,
        name="n",
        version="1",
        description="d",
        criteria=["no_missing_steps"],
        capabilities=["uses-pool"],
        limits={"max_steps": 40},
    )
    assert made.full_name == "dramaturg.api.agents.v1.SynthesizeService"
    assert list(made.identity.criteria) == ["no_missing_steps"]
    assert dict(made.identity.limits) == {"max_steps": 40}


async def test_a_call_costs_no_more_for_methods_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC waits for calls by one task, and by one more for each registered method."""
    waited_for: list[int] = []
    wait = asyncio.wait

    def counting(tasks: Collection[Any], **options: Any) -> Any:
        waited_for.append(len(tasks))
        return wait(tasks, **options)

    monkeypatch.setattr(asyncio, "wait", counting)
    async with serve(synthesizer(silent)) as server:
        await identity_of(server.target, "")
    # The other is reflection's, which gRPC adds by itself.
    assert max(waited_for) <= 2


async def test_health_of_an_unknown_service_is_not_found() -> None:
    async with serve(synthesizer(silent)) as server, grpc.aio.insecure_channel(server.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="x.Y"))
        error = from_rpc_error(raised.value)
        assert error.code is grpc.StatusCode.NOT_FOUND
        assert error.reason_name == "ERROR_REASON_RESOURCE_NOT_FOUND"
        assert error.metadata == {"name": "x.Y"}
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="x.Y"))
        assert (await watch.read()).status == Status.SERVICE_UNKNOWN


async def test_a_drain_reports_not_serving_while_it_still_serves() -> None:
    async with (
        serve(synthesizer(silent), drain_delay_seconds=0.5) as server,
        open_channel(server.target) as channel,
    ):
        health, stub = health_pb2_grpc.HealthStub(channel), SynthesizeServiceStub(channel)
        await stub.Synthesize(synthesize_request())
        draining = asyncio.create_task(server.drain())
        await asyncio.sleep(0)
        async with grpc.aio.insecure_channel(server.target) as other:
            for name in ("", "dramaturg.api.agents.v1.SynthesizeService"):
                answer = await health_pb2_grpc.HealthStub(other).Check(
                    health_pb2.HealthCheckRequest(service=name)
                )
                assert answer.status == Status.NOT_SERVING
            await SynthesizeServiceStub(other).Synthesize(synthesize_request())
        await draining
        del health


async def test_a_drain_tells_watches_shortly_before_connections_close() -> None:
    """A client that knows this server alone looks for others when its connection ends, not before."""
    async with (
        serve(synthesizer(silent), drain_delay_seconds=1.5) as server,
        open_channel(server.target) as channel,
        grpc.aio.insecure_channel(server.target) as other,
    ):
        health = health_pb2_grpc.HealthStub(other)
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == Status.SERVING
        told = asyncio.ensure_future(watch.read())
        draining = asyncio.create_task(server.drain())
        await asyncio.sleep(0)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == Status.NOT_SERVING
        await SynthesizeServiceStub(channel).Synthesize(synthesize_request())
        assert not told.done()
        assert (await told).status == Status.NOT_SERVING
        assert not draining.done()
        await draining


async def test_a_drain_lets_calls_under_way_end() -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def work(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        entered.set()
        await release.wait()
        return SynthesizeResponse()

    async with serve(synthesizer(work)) as server, open_channel(server.target) as channel:
        call = asyncio.ensure_future(SynthesizeServiceStub(channel).Synthesize(synthesize_request()))
        await asyncio.wait_for(entered.wait(), 10)
        draining = asyncio.create_task(server.drain())
        await asyncio.sleep(0.05)
        assert not draining.done()
        release.set()
        await call
        await asyncio.wait_for(draining, 10)


async def test_a_connection_is_open_while_the_last_answer_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that writes to a closed connection drops the answers that it has not read."""
    monkeypatch.setattr(serving, "_READ_SECONDS", 1000.0)
    entered, release = asyncio.Event(), asyncio.Event()

    async def work(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        entered.set()
        await release.wait()
        return SynthesizeResponse()

    async with serve(synthesizer(work)) as server, grpc.aio.insecure_channel(server.target) as channel:
        stub, stopped = SynthesizeServiceStub(channel), server._server
        call = asyncio.ensure_future(stub.Synthesize(synthesize_request()))
        await asyncio.wait_for(entered.wait(), 10)
        draining = asyncio.create_task(server.drain())
        # After the drain has begun to wait for the call.
        await asyncio.sleep(0.05)
        release.set()
        await call
        await stub.Synthesize(synthesize_request())
        assert not draining.done()
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)
        assert stopped is not None
        await stopped.stop(None)


async def test_calls_that_outlast_the_grace_are_cancelled() -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def work(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return SynthesizeResponse()

    async with (
        serve(synthesizer(work), drain_grace_seconds=0.1) as server,
        open_channel(server.target) as channel,
    ):
        call = asyncio.ensure_future(SynthesizeServiceStub(channel).Synthesize(synthesize_request()))
        await asyncio.wait_for(entered.wait(), 10)
        await asyncio.wait_for(server.drain(), 10)
        await asyncio.wait_for(cancelled.wait(), 10)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_drain_twice_is_a_drain() -> None:
    async with serve(synthesizer(silent)) as server:
        await server.drain()
        await server.drain()


@pytest.mark.parametrize("steps", [25, 400])
async def test_a_message_over_the_size_limit_is_refused(steps: int) -> None:
    async with (
        serve(synthesizer(silent), max_message_bytes=2048) as server,
        open_channel(server.target) as channel,
    ):
        request = synthesize_request()
        for _ in range(steps):
            request.candidates[0].script.steps.add(text="x" * 100)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await SynthesizeServiceStub(channel).Synthesize(request)
    error = from_rpc_error(raised.value)
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.reason_name == "ERROR_REASON_TOO_LARGE"
    # Up to twice the limit the server itself says so, to clients of every language; beyond, gRPC does.
    by_server = steps == 25
    assert error.metadata == {
        "limit": "2048" if by_server else "4096",
        "actual": str(request.ByteSize()),
    }
    assert bool(rpc_status.from_call(raised.value)) is by_server


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_is_served_in_both_versions(version: str) -> None:
    name = f"grpc.reflection.{version}.ServerReflection"
    async with serve(synthesizer(silent)) as server, grpc.aio.insecure_channel(server.target) as channel:
        ask: Any = channel.stream_stream(
            f"/{name}/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        call = ask(iter([reflection_pb2.ServerReflectionRequest(list_services="*")]))
        answers = [answer async for answer in call]
    listed = {service.name for service in answers[0].list_services_response.service}
    assert "dramaturg.api.agents.v1.SynthesizeService" in listed


async def test_a_method_that_the_servicer_leaves_out_is_not_implemented() -> None:
    contract = synthesizer(silent)
    base = type(contract.servicer).__mro__[1]
    bare = Contract(contract.descriptor, contract.add, base(), contract.identity)
    async with serve(bare) as server, open_channel(server.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await SynthesizeServiceStub(channel).Synthesize(synthesize_request())
    assert from_rpc_error(raised.value).reason_name == "ERROR_REASON_NOT_IMPLEMENTED"


@pytest.mark.parametrize("accepted", [False, True])
async def test_compressed_requests_are_read_only_if_the_settings_say_so(accepted: bool) -> None:
    async with (
        serve(synthesizer(silent), compressed_requests=accepted) as server,
        grpc.aio.insecure_channel(server.target, compression=grpc.Compression.Gzip) as channel,
    ):
        call = SynthesizeServiceStub(channel).Synthesize(synthesize_request(goal="tea " * 100))
        assert await call.code() is (grpc.StatusCode.OK if accepted else grpc.StatusCode.UNIMPLEMENTED)


KNOWN, *OTHERS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
DRAIN_SECONDS = 4.0
"""Longer than the attempts of a call."""


async def test_a_client_that_knows_one_replica_alone_loses_no_call_when_it_drains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It learns of the others when its connection ends, and knows no other address until then."""
    # The last lookup is long ago.
    monkeypatch.setattr(channels, "LOOKUP_SECONDS", 1)
    served: Counter[str] = Counter()
    stopped = asyncio.Event()

    def replica(host: str, port: int, drain_seconds: float) -> Server:
        async def work(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
            await asyncio.sleep(0.005)
            served[host] += 1
            return SynthesizeResponse()

        settings = ServerSettings(host=host, port=port, drain_delay_seconds=drain_seconds)
        return Server([synthesizer(work)], settings)

    async def call_on(stub: Any) -> None:
        while not stopped.is_set():
            await stub.Synthesize(synthesize_request(), timeout=30)

    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(KNOWN))
        known = replica(KNOWN, 0, DRAIN_SECONDS)
        await known.start()
        channel = await stack.enter_async_context(open_channel(names.target(known.port)))
        calls = asyncio.gather(*(call_on(SynthesizeServiceStub(channel)) for _ in range(8)))
        await until(lambda: served[KNOWN] > 0 or calls.done())
        others = [replica(host, known.port, 0) for host in OTHERS]
        for one in others:
            await one.start()
        names.addresses = [KNOWN, *OTHERS]
        draining = asyncio.create_task(known.drain())
        await until(lambda: draining.done() or calls.done(), 30)
        names.addresses = list(OTHERS)
        await until(lambda: all(served[host] for host in OTHERS) or calls.done(), 30)
        stopped.set()
        await calls
        await draining
        await asyncio.gather(*(one.drain() for one in others))


each_arity = pytest.mark.parametrize("method", [name for name, _, _ in METHODS])
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


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
