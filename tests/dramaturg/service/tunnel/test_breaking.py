"""What becomes of the calls of a tunnel that breaks, or of a server that refuses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import grpc
import pytest

from dramaturg.api.agents.v1 import critic_service_pb2_grpc
from dramaturg.api.agents.v1.critic_service_pb2 import CritiqueRequest, CritiqueResponse
from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.api.tunnel.v1 import tunnel_service_pb2_grpc
from dramaturg.api.tunnel.v1.tunnel_service_pb2 import Answer, OpenTunnelRequest, OpenTunnelResponse
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError, from_rpc_error
from tests.support.grpc_servers import (
    Critique,
    FunctionCritic,
    critic,
    critique_request,
    serve,
    silent,
    until,
)
from tests.support.tunnels import always, carried_critic, critics, is_carried


async def test_calls_of_a_server_that_is_lost_are_made_again() -> None:
    begun = 0
    release = asyncio.Event()

    async def work(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        nonlocal begun
        begun += 1
        await release.wait()
        return CritiqueResponse()

    async with lost_and_found(work) as (stub, lost):
        calls = [asyncio.ensure_future(_result(stub.Critique(critique_request()))) for _ in range(20)]
        await until(lambda: begun == 20)
        lost.cut()
        release.set()
        await asyncio.wait_for(asyncio.gather(*calls), 30)


async def test_a_server_that_is_lost_while_it_is_written_to_fails_no_call() -> None:
    """gRPC for Python tells the end of such a stream as INTERNAL."""
    answered = 0

    async def work(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        nonlocal answered
        answered += 1
        return CritiqueResponse()

    async with lost_and_found(work) as (stub, lost):
        stopped = False
        request = critique_request()
        for _ in range(20):
            request.candidate.script.steps.add(text="x" * 2000)

        async def calling() -> None:
            while not stopped:
                await stub.Critique(request)

        callers = [asyncio.create_task(calling()) for _ in range(32)]
        await until(lambda: answered > 500)
        lost.cut()
        cut_at = answered
        await until(lambda: answered > cut_at + 500)
        stopped = True
        await asyncio.gather(*callers)


@asynccontextmanager
async def lost_and_found(
    critique: Critique,
) -> AsyncIterator[tuple[critic_service_pb2_grpc.CriticServiceAsyncStub, Relay]]:
    """A stub that calls two replicas, and what the connections to one of them pass."""
    async with (
        serve(critic(critique)) as first,
        serve(critic(critique)) as second,
        Relay(first.target) as lost,
        Relay(second.target) as found,
        open_channel(f"ipv4:{lost.address},{found.address}", always()) as channel,
    ):
        yield critics(channel), lost


class Relay:
    """Passes a connection on, until it is cut."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._writers: list[asyncio.StreamWriter] = []
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Loses every connection, and takes no other."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._target.split(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        self._writers += [writer, far_writer]
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def _result(call: Awaitable[Any]) -> Any:
    return await call


@pytest.mark.parametrize("retry_after", [0.0, 0.2, None])
async def test_a_replica_that_cannot_just_now_is_asked_again(retry_after: float | None) -> None:
    """What the retry policy of a channel does with calls that are its own."""
    carried: list[bool] = []

    async def at_first_not(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        carried.append(is_carried(context))
        if len(carried) == 1:
            raise ServiceError(
                grpc.StatusCode.UNAVAILABLE,
                reasons.ERROR_REASON_SHUTTING_DOWN,
                "not now",
                retry_after=retry_after,
            )
        return CritiqueResponse()

    async with carried_critic(at_first_not) as stub:
        await asyncio.wait_for(stub.Critique(critique_request()), 10)
    assert carried == [True, False]


async def test_what_others_retried_is_not_retried() -> None:
    calls = 0

    async def gone(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        nonlocal calls
        calls += 1
        raise ServiceError(
            grpc.StatusCode.UNAVAILABLE, reasons.ERROR_REASON_PROVIDER_UNAVAILABLE, "it was tried often"
        )

    async with carried_critic(gone) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asyncio.wait_for(_result(stub.Critique(critique_request())), 10)
    assert calls == 1
    assert from_rpc_error(raised.value).reason == reasons.ERROR_REASON_PROVIDER_UNAVAILABLE


class Strange(tunnel_service_pb2_grpc.TunnelServiceServicer):
    """Answers the first call of a tunnel with what no server should."""

    def __init__(self, answers: Sequence[Answer], ends: grpc.StatusCode | None) -> None:
        self._answers = answers
        self._ends = ends

    async def OpenTunnel(self, requests: AsyncIterator[OpenTunnelRequest], context: Any) -> None:  # type: ignore[override]
        await context.write(OpenTunnelResponse(server="strange"))
        await anext(requests)
        await context.write(OpenTunnelResponse(answers=self._answers))
        if self._ends is not None:
            await context.abort(self._ends, "it ends")


@pytest.mark.parametrize(
    ("answers", "ends"),
    [
        ([], grpc.StatusCode.CANCELLED),
        ([], grpc.StatusCode.INTERNAL),
        ([], grpc.StatusCode.DATA_LOSS),
        ([], grpc.StatusCode.INVALID_ARGUMENT),
        ([], None),
        ([Answer(call=77)], grpc.StatusCode.UNAVAILABLE),
        ([Answer(call=1, response=b"x", more=True)] * 3, grpc.StatusCode.UNAVAILABLE),
    ],
)
async def test_what_becomes_of_a_tunnel_is_not_its_calls(
    answers: Sequence[Answer], ends: grpc.StatusCode | None
) -> None:
    server = grpc.aio.server()
    critic_service_pb2_grpc.add_CriticServiceServicer_to_server(FunctionCritic(silent), server)
    tunnel_service_pb2_grpc.add_TunnelServiceServicer_to_server(Strange(answers, ends), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}", always()) as channel:
            calls = [critics(channel).Critique(critique_request()) for _ in range(5)]
            assert await asyncio.wait_for(asyncio.gather(*calls), 20) == [CritiqueResponse()] * 5
    finally:
        await server.stop(None)


@pytest.mark.parametrize("pushback", ["-1", "soon", "9" * 5000])
async def test_a_strange_pushback_is_none(pushback: str) -> None:
    answer = Answer(call=1, code=grpc.StatusCode.UNAVAILABLE.value[0])
    answer.trailing_metadata.add(key="grpc-retry-pushback-ms", text=pushback)
    server = grpc.aio.server()
    tunnel_service_pb2_grpc.add_TunnelServiceServicer_to_server(Strange([answer], None), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}", always()) as channel:
            code = await asyncio.wait_for(critics(channel).Critique(critique_request()).code(), 10)
    finally:
        await server.stop(None)
    assert code is grpc.StatusCode.UNAVAILABLE
