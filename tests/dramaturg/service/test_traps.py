"""What gRPC in Python does that one would not expect; each is held by a test."""

from __future__ import annotations

import ast
import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

import dramaturg.service
from dramaturg.api.agents.v1 import synthesize_service_pb2_grpc
from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.service import context
from dramaturg.service.channel import SERVICE_CONFIG, open_channel
from dramaturg.service.errors import from_rpc_error
from dramaturg.service.server import Server
from dramaturg.service.settings import ChannelSettings, ServerSettings
from dramaturg.testing import serve, until
from tests.support.grpc_servers import (
    METHODS,
    arities,
    call_arity,
    relay,
    serve_synthesizer,
    silent,
    synthesize_request,
    synthesizer,
)

ROOT = Path(__file__).resolve().parents[3]


async def test_deadline_reaches_second_hop() -> None:
    seen: list[float] = []

    async def note(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        seen.append(servicer_context.time_remaining())
        return SynthesizeResponse()

    async with (
        serve(synthesizer(note)) as second,
        serve_synthesizer(relay(second.target, ChannelSettings(deadline_reserve_seconds=0.5))) as stub,
    ):
        await stub.Synthesize(synthesize_request(), timeout=5)
        await stub.Synthesize(synthesize_request(), timeout=50)
    # The wire format of gRPC rounds a timeout up, by a percent at most.
    assert 4 < seen[0] < 4.6
    assert 49 < seen[1] < 50


@pytest.mark.parametrize("method", [name for name, _, _ in METHODS])
async def test_deadline_reaches_second_hop_whatever_its_arity(method: str) -> None:
    """An interceptor with the base classes of all arities is used for unary calls only."""
    seen: list[tuple[float | None, str]] = []

    async def note() -> None:
        request = context.current()
        assert request is not None
        seen.append((request.remaining(), request.request_id))

    async with serve(arities(note)) as second, open_channel(second.target) as channel:

        async def forward() -> None:
            await call_arity(channel, method, synthesize_request())

        async with serve(arities(forward)) as first, open_channel(first.target) as outer:
            with context.scope(context.RequestContext(request_id="from-afar")):
                await call_arity(outer, method, synthesize_request(), timeout=5)
    ((left, request_id),) = seen
    assert left is not None
    assert 4 < left < 5
    assert request_id == "from-afar"


async def test_cancel_reaches_second_hop() -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return SynthesizeResponse()

    async with serve(synthesizer(wait)) as second, serve_synthesizer(relay(second.target)) as stub:
        call = asyncio.ensure_future(stub.Synthesize(synthesize_request()))
        await asyncio.wait_for(entered.wait(), 10)
        call.cancel()
        await asyncio.wait_for(cancelled.wait(), 10)


async def test_a_deadline_that_passes_cancels_the_second_hop() -> None:
    cancelled = asyncio.Event()

    async def wait(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return SynthesizeResponse()

    async with serve(synthesizer(wait)) as second, serve_synthesizer(relay(second.target)) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Synthesize(synthesize_request(), timeout=0.3)
        await asyncio.wait_for(cancelled.wait(), 10)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_no_timeout_in_service_config() -> None:
    assert "timeout" not in json.dumps(SERVICE_CONFIG)


async def test_a_call_may_use_all_of_its_time() -> None:
    """A timeout of the service config would end it one to two seconds early."""

    async def work(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        await asyncio.sleep(0.4)
        return SynthesizeResponse()

    async with serve_synthesizer(work) as stub:
        await stub.Synthesize(synthesize_request(), timeout=1.0)


async def burst(size: int) -> None:
    served = 0

    async def count(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        nonlocal served
        served += 1
        return SynthesizeResponse()

    async with serve_synthesizer(count) as stub:
        request = synthesize_request()
        await asyncio.gather(*(stub.Synthesize(request) for _ in range(size)))
    assert served == size


async def test_burst_of_2000_calls_loses_none() -> None:
    await burst(2000)


@pytest.mark.slow
async def test_burst_of_3900_calls_loses_none() -> None:
    await burst(3900)


async def test_a_burst_beyond_the_limit_is_refused_with_a_reason() -> None:
    release = asyncio.Event()

    async def wait(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        await release.wait()
        return SynthesizeResponse()

    def note(call: asyncio.Future[SynthesizeResponse]) -> None:
        ended.append(call)

    ended: list[asyncio.Future[SynthesizeResponse]] = []
    async with serve_synthesizer(wait, max_concurrent_calls=100) as stub:
        calls = [asyncio.ensure_future(stub.Synthesize(synthesize_request())) for _ in range(1500)]
        for call in calls:
            call.add_done_callback(note)
        await until(lambda: len(ended) == 1400)
        release.set()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, grpc.aio.AioRpcError)]
    assert len(errors) == 1400
    assert {from_rpc_error(error).reason for error in errors} == {reasons.ERROR_REASON_OVERLOADED}


async def test_health_answers_when_saturated() -> None:
    release, entered = asyncio.Event(), asyncio.Event()

    async def wait(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        entered.set()
        await release.wait()
        return SynthesizeResponse()

    async with (
        serve(synthesizer(wait), max_concurrent_calls=1) as server,
        open_channel(server.target) as channel,
    ):
        call = asyncio.ensure_future(SynthesizeServiceStub(channel).Synthesize(synthesize_request()))
        await asyncio.wait_for(entered.wait(), 10)
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "dramaturg.api.agents.v1.SynthesizeService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        release.set()
        await call


async def test_unhandled_failure_of_a_dependency_keeps_its_meaning() -> None:
    async with serve_synthesizer(relay("127.0.0.1:1")) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Synthesize(synthesize_request(), timeout=10)
    error = from_rpc_error(raised.value)
    assert (error.code, error.reason_name) == (grpc.StatusCode.UNAVAILABLE, "ERROR_REASON_DEPENDENCY_FAILED")
    assert error.metadata["code"] == "UNAVAILABLE"
    assert "127.0.0.1" not in error.message


async def test_unhandled_exception_does_not_leak_from_the_second_hop() -> None:
    async def fail(request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        raise ValueError("secret detail")

    async with serve(synthesizer(fail)) as second, serve_synthesizer(relay(second.target)) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Synthesize(synthesize_request())
    assert raised.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in repr(raised.value)


class Replica:
    """A server that counts its calls and can be replaced by a new one on the same port."""

    def __init__(self) -> None:
        self.answered = 0
        self.server = self._fresh(port=0)

    def _fresh(self, port: int) -> Server:
        return Server([synthesizer(self._work)], ServerSettings.loopback(port=port, drain_delay_seconds=0.3))

    async def _work(self, request: SynthesizeRequest, servicer_context: Any) -> SynthesizeResponse:
        await asyncio.sleep(0.005)
        self.answered += 1
        return SynthesizeResponse()

    async def restart(self) -> None:
        await self.server.drain()
        self.server = self._fresh(self.server.port)
        await self.server.start()

    async def answers(self) -> None:
        """Waits until this replica has part in the calls."""
        wanted = self.answered + 20
        await until(lambda: self.answered >= wanted)


async def test_rolling_restart_loses_no_call() -> None:
    replicas = [Replica(), Replica()]
    for replica in replicas:
        await replica.server.start()
    stopped = asyncio.Event()

    async def caller(stub: Any) -> None:
        while not stopped.is_set():
            await stub.Synthesize(synthesize_request(), timeout=10)

    async with open_channel("ipv4:" + ",".join(replica.server.target for replica in replicas)) as channel:
        callers = asyncio.gather(*(caller(SynthesizeServiceStub(channel)) for _ in range(8)))
        for replica in replicas:
            await replica.answers()
        for replica in replicas:
            await replica.restart()
            await replica.answers()
        stopped.set()
        await callers
    for replica in replicas:
        await replica.server.drain()


async def test_a_watcher_that_leaves_does_not_deafen_the_others() -> None:
    """In the health servicer that comes with gRPC it does: the others never hear that the server drains."""
    async with serve(synthesizer(silent), drain_delay_seconds=0.05) as server:
        channels = [
            grpc.aio.insecure_channel(server.target, [("grpc.use_local_subchannel_pool", 1)])
            for _ in range(2)
        ]
        watches = [
            health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest()) for channel in channels
        ]
        for watch in watches:
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        watches[0].cancel()
        await channels[0].close()
        draining = asyncio.create_task(server.drain())
        answer = await asyncio.wait_for(watches[1].read(), 10)
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        await draining
        await channels[1].close()


async def test_watchers_do_not_hold_up_a_drain() -> None:
    async with (
        serve(synthesizer(silent), drain_grace_seconds=60) as server,
        grpc.aio.insecure_channel(server.target) as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        await asyncio.wait_for(server.drain(), 10)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_services(version: str) -> None:
    request = reflection_pb2.ServerReflectionRequest
    async with serve(synthesizer(silent)) as server, grpc.aio.insecure_channel(server.target) as channel:
        ask: Any = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        questions = [
            request(list_services=""),
            request(file_containing_symbol="dramaturg.api.agents.v1.SynthesizeService"),
            request(file_containing_symbol="dramaturg.api.identity.v1.IdentityService"),
        ]
        answers = [answer async for answer in ask(iter(questions))]
    names = {service.name for service in answers[0].list_services_response.service}
    assert {
        "dramaturg.api.agents.v1.SynthesizeService",
        "dramaturg.api.identity.v1.IdentityService",
        "grpc.health.v1.Health",
    } <= names
    for answer in answers[1:]:
        assert not answer.HasField("error_response")
        file = descriptor_pb2.FileDescriptorProto.FromString(
            answer.file_descriptor_response.file_descriptor_proto[0]
        )
        assert len(file.service) == 1


async def test_two_servers_never_share_a_port() -> None:
    async with serve(synthesizer(silent)) as first:
        second = Server([synthesizer(silent)], ServerSettings.loopback(port=first.port))
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{first.port}"):
            await second.start()


def test_gencode_is_built_by_the_oldest_supported_tools() -> None:
    """Generated code refuses runtimes older than the tools that made it."""
    project = (ROOT / "pyproject.toml").read_text()
    generated: str = synthesize_service_pb2_grpc.GRPC_GENERATED_VERSION
    assert f'"grpcio>={generated.rpartition(".")[0]},' in project
    assert f'"grpcio-tools=={generated}"' in project


def test_nothing_of_the_runtime_keeps_a_channel_in_a_module() -> None:
    """A channel is bound to the loop of its first call; a global one breaks the second ``asyncio.run``."""
    for file in Path(dramaturg.service.__path__[0]).rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            assert not (isinstance(node, ast.Assign) and "channel(" in ast.unparse(node.value)), file
