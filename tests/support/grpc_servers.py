"""Real servers on free ports: a critic made of a function, and a service with all four arities."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

from dramaturg.api.agents.v1 import critic_service_pb2, critic_service_pb2_grpc
from dramaturg.api.agents.v1.critic_service_pb2 import CritiqueRequest, CritiqueResponse
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.service.channel import open_channel
from dramaturg.service.server import Contract, Server
from dramaturg.service.settings import ChannelSettings, ServerSettings

CRITIC = critic_service_pb2.DESCRIPTOR.services_by_name["CriticService"]
ARITIES = "dramaturg.tests.v1.ArityService"

Critique = Callable[[CritiqueRequest, Any], Awaitable[CritiqueResponse]]
Work = Callable[[], Awaitable[None]]


def critique_request(**task: Any) -> CritiqueRequest:
    """A request that breaks no limit."""
    request = CritiqueRequest(task=Task(**{"goal": "Bake a cake", **task}))
    request.candidate.id = "a"
    request.candidate.script.steps.add(text="Mix the dough.")
    return request


class FunctionCritic(critic_service_pb2_grpc.CriticServiceServicer):
    """A critic that does what the function does."""

    def __init__(self, critique: Critique) -> None:
        self._critique = critique

    async def Critique(self, request: CritiqueRequest, context: Any) -> CritiqueResponse:
        return await self._critique(request, context)


def critic(critique: Critique, *, name: str = "test-critic") -> Contract:
    """The contract of a critic that does what the function does."""
    return Contract.make(
        CRITIC,
        critic_service_pb2_grpc.add_CriticServiceServicer_to_server,
        FunctionCritic(critique),
        name=name,
        version="1.0.0",
        description="A critic for tests.",
    )


async def silent(request: CritiqueRequest, context: Any) -> CritiqueResponse:
    """Critiques nothing."""
    return CritiqueResponse()


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Waits until a condition holds; fails after so many seconds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for does not know of the test
            await asyncio.sleep(0.005)


def server_settings(**settings: Any) -> ServerSettings:
    """Settings for a free port."""
    return ServerSettings(**{"port": 0, "drain_grace_seconds": 5.0, **settings})


@asynccontextmanager
async def serve(*contracts: Contract, **settings: Any) -> AsyncIterator[Server]:
    """Serves contracts on a free port."""
    async with Server(contracts, server_settings(**settings)) as server:
        yield server


@asynccontextmanager
async def serve_critic(
    critique: Critique, **settings: Any
) -> AsyncIterator[critic_service_pb2_grpc.CriticServiceAsyncStub]:
    """Serves a critic and yields a stub that calls it through a channel of the runtime."""
    async with serve(critic(critique), **settings) as server, open_channel(server.target) as channel:
        yield critic_service_pb2_grpc.CriticServiceStub(channel)


def relay(target: str, settings: ChannelSettings | None = None) -> Critique:
    """A critic that asks another one: the first of two hops."""
    channel = open_channel(target, settings)
    stub = critic_service_pb2_grpc.CriticServiceStub(channel)

    async def critique(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        return await stub.Critique(request)

    return critique


def _arity_descriptor() -> ServiceDescriptor:
    file = descriptor_pb2.FileDescriptorProto(
        name="dramaturg/tests/v1/arity_service.proto",
        package="dramaturg.tests.v1",
        syntax="proto3",
        dependency=[CRITIC.file.name],
    )
    service = file.service.add(name="ArityService")
    for name, requests, responses in METHODS:
        service.method.add(
            name=name,
            input_type=f".{CritiqueRequest.DESCRIPTOR.full_name}",
            output_type=f".{CritiqueResponse.DESCRIPTOR.full_name}",
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

    async def UnaryUnary(self, request: CritiqueRequest, context: Any) -> CritiqueResponse:
        await self._work()
        return CritiqueResponse()

    async def UnaryStream(self, request: CritiqueRequest, context: Any) -> AsyncIterator[CritiqueResponse]:
        for _ in range(3):
            yield CritiqueResponse()
        await self._work()

    async def StreamUnary(self, requests: AsyncIterator[CritiqueRequest], context: Any) -> CritiqueResponse:
        async for _ in requests:
            pass
        await self._work()
        return CritiqueResponse()

    async def StreamStream(
        self, requests: AsyncIterator[CritiqueRequest], context: Any
    ) -> AsyncIterator[CritiqueResponse]:
        async for _ in requests:
            yield CritiqueResponse()
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
        name: make(getattr(servicer, name), CritiqueRequest.FromString, CritiqueResponse.SerializeToString)
        for (name, _, _), make in zip(METHODS, makers, strict=True)
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(ARITIES, handlers)])


async def call_arity(
    channel: grpc.aio.Channel, method: str, *requests: CritiqueRequest, timeout: float | None = None
) -> int:
    """Calls one of the four methods; returns how many responses came."""
    index = [name for name, _, _ in METHODS].index(method)
    kinds = (channel.unary_unary, channel.unary_stream, channel.stream_unary, channel.stream_stream)
    make: Any = kinds[index]
    multi = make(f"/{ARITIES}/{method}", CritiqueRequest.SerializeToString, CritiqueResponse.FromString)
    _, streams_requests, streams_responses = METHODS[index]
    call = multi(iter(requests) if streams_requests else requests[0], timeout=timeout)
    if not streams_responses:
        await call
        return 1
    return len([response async for response in call])
