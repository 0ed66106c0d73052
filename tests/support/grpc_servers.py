"""Real servers on free ports: a synthesizer made of a function, and a service with all four arities."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

from dramaturg.api.agents.v1 import synthesize_service_pb2, synthesize_service_pb2_grpc
from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.service.channel import open_channel
from dramaturg.service.server import Contract
from dramaturg.service.settings import ChannelSettings
from dramaturg.testing import serve

SYNTHESIZER = synthesize_service_pb2.DESCRIPTOR.services_by_name["SynthesizeService"]
ARITIES = "dramaturg.tests.v1.ArityService"

Synthesize = Callable[[SynthesizeRequest, Any], Awaitable[SynthesizeResponse]]
Work = Callable[[], Awaitable[None]]


def synthesize_request(**task: Any) -> SynthesizeRequest:
    """A request that breaks no limit."""
    request = SynthesizeRequest(task=Task(**{"goal": "Bake a cake", **task}))
    request.candidates.add(id="a").script.steps.add(text="Mix the dough.")
    return request


class FunctionSynthesizer(synthesize_service_pb2_grpc.SynthesizeServiceServicer):
    """A synthesizer that does what the function does."""

    def __init__(self, synthesize: Synthesize) -> None:
        self._synthesize = synthesize

    async def Synthesize(self, request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        return await self._synthesize(request, context)


def synthesizer(synthesize: Synthesize, *, name: str = "test-synthesizer") -> Contract:
    """The contract of a synthesizer that does what the function does."""
    return Contract.make(
        SYNTHESIZER,
        synthesize_service_pb2_grpc.add_SynthesizeServiceServicer_to_server,
        FunctionSynthesizer(synthesize),
        name=name,
        version="1.0.0",
        description="A synthesizer for tests.",
    )


async def silent(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
    """Synthesizes nothing."""
    return SynthesizeResponse()


@asynccontextmanager
async def serve_synthesizer(
    synthesize: Synthesize, **settings: Any
) -> AsyncIterator[synthesize_service_pb2_grpc.SynthesizeServiceAsyncStub]:
    """Serves a synthesizer and yields a stub that calls it through a channel of the runtime."""
    async with serve(synthesizer(synthesize), **settings) as server, open_channel(server.target) as channel:
        yield synthesize_service_pb2_grpc.SynthesizeServiceStub(channel)


def relay(target: str, settings: ChannelSettings | None = None) -> Synthesize:
    """A synthesizer that asks another one: the first of two hops."""
    channel = open_channel(target, settings)
    stub = synthesize_service_pb2_grpc.SynthesizeServiceStub(channel)

    async def synthesize(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        return await stub.Synthesize(request)

    return synthesize


def _arity_descriptor() -> ServiceDescriptor:
    file = descriptor_pb2.FileDescriptorProto(
        name="dramaturg/tests/v1/arity_service.proto",
        package="dramaturg.tests.v1",
        syntax="proto3",
        dependency=[SYNTHESIZER.file.name],
    )
    service = file.service.add(name="ArityService")
    for name, requests, responses in METHODS:
        service.method.add(
            name=name,
            input_type=f".{SynthesizeRequest.DESCRIPTOR.full_name}",
            output_type=f".{SynthesizeResponse.DESCRIPTOR.full_name}",
            client_streaming=requests,
            server_streaming=responses,
        )
    pool = descriptor_pool.Default()
    pool.Add(file)
    return pool.FindServiceByName(ARITIES)


METHODS: Sequence[tuple[str, bool, bool]] = (
    ("UnaryUnary", False, False),
    ("UnaryStream", False, True),
    ("StreamUnary", True, False),
    ("StreamStream", True, True),
)
_ARITY_SERVICE = _arity_descriptor()


class ArityServicer:
    """Does ``work`` in each of four methods; a stream answers each request, or one request thrice."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def UnaryUnary(self, request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        await self._work()
        return SynthesizeResponse()

    async def UnaryStream(
        self, request: SynthesizeRequest, context: Any
    ) -> AsyncIterator[SynthesizeResponse]:
        for _ in range(3):
            yield SynthesizeResponse()
        await self._work()

    async def StreamUnary(
        self, requests: AsyncIterator[SynthesizeRequest], context: Any
    ) -> SynthesizeResponse:
        async for _ in requests:
            pass
        await self._work()
        return SynthesizeResponse()

    async def StreamStream(
        self, requests: AsyncIterator[SynthesizeRequest], context: Any
    ) -> AsyncIterator[SynthesizeResponse]:
        async for _ in requests:
            yield SynthesizeResponse()
        await self._work()


def arities(work: Work) -> Contract:
    """The contract of a service that does ``work`` whichever method is called."""
    return Contract.make(
        _ARITY_SERVICE,
        _add_arities,
        ArityServicer(work),
        name="arities",
        version="1.0.0",
        description="Every arity.",
    )


def _add_arities(servicer: ArityServicer, server: grpc.aio.Server) -> None:
    makers = (
        grpc.unary_unary_rpc_method_handler,
        grpc.unary_stream_rpc_method_handler,
        grpc.stream_unary_rpc_method_handler,
        grpc.stream_stream_rpc_method_handler,
    )
    handlers: dict[str, Any] = {
        name: make(
            getattr(servicer, name), SynthesizeRequest.FromString, SynthesizeResponse.SerializeToString
        )
        for (name, _, _), make in zip(METHODS, makers, strict=True)
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(ARITIES, handlers)])


def call_object(
    channel: grpc.aio.Channel, method: str, *requests: SynthesizeRequest, timeout: float | None = None
) -> Any:
    """Begins a call of one of the four methods."""
    index = [name for name, _, _ in METHODS].index(method)
    kinds = (channel.unary_unary, channel.unary_stream, channel.stream_unary, channel.stream_stream)
    make: Any = kinds[index]
    multi = make(f"/{ARITIES}/{method}", SynthesizeRequest.SerializeToString, SynthesizeResponse.FromString)
    _, streams_requests, _ = METHODS[index]
    return multi(iter(requests) if streams_requests else requests[0], timeout=timeout)


async def call_arity(
    channel: grpc.aio.Channel, method: str, *requests: SynthesizeRequest, timeout: float | None = None
) -> int:
    """Calls one of the four methods; returns how many responses came."""
    call = call_object(channel, method, *requests, timeout=timeout)
    if not next(streamed for name, _, streamed in METHODS if name == method):
        await call
        return 1
    return len([response async for response in call])
