"""Health on a port of its own."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2_grpc

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.service.health import HealthServicer
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import serve
from tests.support.grpc_servers import silent, synthesize_request, synthesizer
from tests.support.ports import free_port

CONTRACT = "dramaturg.api.agents.v1.SynthesizeService"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


async def probe(port: int, service: str = "") -> int:
    """What a probe hears, on a connection of its own."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=10)
    return int(answer.status)


async def code(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value.code()


async def test_a_probe_asks_for_the_server_and_for_each_contract() -> None:
    port = free_port()
    async with serve(synthesizer(silent), probe_port=port):
        assert await probe(port) == await probe(port, CONTRACT) == SERVING
        assert await code(probe(port, "x.Y")) is grpc.StatusCode.NOT_FOUND
    assert await code(probe(port)) is grpc.StatusCode.UNAVAILABLE


async def test_services_of_one_process_are_told_apart_by_their_names() -> None:
    port = free_port()
    critic, execute = synthesizer(silent), synthesizer(silent)
    beside = Server([execute], ServerSettings.loopback(), name="execute")
    settings = ServerSettings.loopback(probe_port=port)
    async with Server([critic], settings, name="critic", beside=[beside]) as server:
        for name in ("", "critic", "execute", CONTRACT):
            assert await probe(port, name) == SERVING
        execute.health.serving = False
        assert await probe(port) == await probe(port, "critic") == SERVING
        assert await probe(port, "execute") == await probe(port, CONTRACT) == NOT_SERVING
        assert await probe(server.port, CONTRACT) == SERVING
        assert await probe(beside.port, CONTRACT) == NOT_SERVING
        assert await code(probe(server.port, "execute")) is grpc.StatusCode.NOT_FOUND
    for stopped in (port, server.port, beside.port):
        assert await code(probe(stopped)) is grpc.StatusCode.UNAVAILABLE


async def test_no_service_of_a_process_starts_without_the_others() -> None:
    async with serve(synthesizer(silent)) as other:
        taken = Server([synthesizer(silent)], ServerSettings.loopback(port=other.port))
        server = Server([synthesizer(silent)], ServerSettings.loopback(), beside=[taken])
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{other.port}"):
            await server.start()
        assert await code(probe(server.port)) is grpc.StatusCode.UNAVAILABLE


async def test_nothing_else_is_served_there() -> None:
    port = free_port()
    async with (
        serve(synthesizer(silent), probe_port=port),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        # Nothing is written: gRPC reports a write to a refused stream as INTERNAL.
        reflected = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(timeout=10)
        for call in (
            SynthesizeServiceStub(channel).Synthesize(synthesize_request(), timeout=10),
            IdentityServiceStub(channel).GetIdentity(GetIdentityRequest(), timeout=10),
            reflected.read(),
        ):
            assert await code(call) is grpc.StatusCode.UNIMPLEMENTED


async def test_probes_hear_of_a_drain_until_the_last_call_has_ended() -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def work(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        entered.set()
        await release.wait()
        return SynthesizeResponse()

    port = free_port()
    async with serve(synthesizer(work), probe_port=port) as server, open_channel(server.target) as channel:
        call = asyncio.ensure_future(
            SynthesizeServiceStub(channel).Synthesize(synthesize_request(), timeout=20)
        )
        await asyncio.wait_for(entered.wait(), 10)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as watching:
            watch = health_pb2_grpc.HealthStub(watching).Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == SERVING
            draining = asyncio.create_task(server.drain())
            assert (await watch.read()).status == NOT_SERVING
            assert await watch.read() is grpc.aio.EOF
        assert await probe(port, CONTRACT) == NOT_SERVING
        release.set()
        await call
        await asyncio.wait_for(draining, 10)
        assert await code(probe(port)) is grpc.StatusCode.UNAVAILABLE


async def test_a_watch_that_is_closed_while_it_sends_still_tells_the_last_change() -> None:
    health = HealthServicer({})
    watch = health.Watch(health_pb2.HealthCheckRequest(), Mock())
    assert (await anext(watch)).status == SERVING
    health.shut_down()
    health.close()
    assert [response.status async for response in watch] == [NOT_SERVING]


async def test_without_a_port_there_is_none_and_one_in_use_is_an_error() -> None:
    async with serve(synthesizer(silent)) as other:
        taken = Server([synthesizer(silent)], ServerSettings.loopback(probe_port=other.port))
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{other.port}"):
            await taken.start()
