"""When calls share tunnels, and where they go."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
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
from dramaturg.service.server import Server
from dramaturg.service.settings import ChannelSettings
from dramaturg.service.tunnel.tunnels import TURN_CALLS
from tests.support.auth import holder, token_settings
from tests.support.grpc_servers import (
    Critique,
    FunctionCritic,
    critic,
    critique_request,
    serve,
    server_settings,
    silent,
    until,
)
from tests.support.tunnels import NEVER, always, carried_critic, critics, is_carried


async def test_few_calls_are_gRPCs_own_and_many_share_a_tunnel() -> None:
    seen: list[bool] = []

    async def note(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        seen.append(is_carried(context))
        return CritiqueResponse()

    async with carried_critic(note, ChannelSettings(tunnel_calls_per_second=5)) as stub:
        async with asyncio.timeout(30):
            while not any(seen):
                await stub.Critique(critique_request())
        await stub.Critique(critique_request())
    assert seen[:4] == [False] * 4
    assert seen[-1]


async def test_none_is_shared_where_the_settings_say_so() -> None:
    async def note(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        assert not is_carried(context)
        return CritiqueResponse()

    async with carried_critic(note, NEVER) as stub:
        await asyncio.gather(*(stub.Critique(critique_request()) for _ in range(100)))


@pytest.mark.parametrize("count", [2, 3])
async def test_calls_of_their_own_in_between_do_not_send_all_tunnels_one_way(count: int) -> None:
    """gRPC gives streams and calls to the servers in turn, all together."""
    served: Counter[int] = Counter()

    def counting(index: int) -> Any:
        async def count(request: CritiqueRequest, context: Any) -> CritiqueResponse:
            served[index] += is_carried(context)
            return CritiqueResponse()

        return count

    large = critique_request()
    for _ in range(40):
        large.candidate.script.steps.add(text="x" * 2000)
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(serve(critic(counting(index)))) for index in range(count)]
        targets = ",".join(server.target for server in servers)
        stub = critics(await stack.enter_async_context(open_channel(f"ipv4:{targets}", always())))
        async with asyncio.timeout(30):
            while len(served) < count or not all(served.values()):
                await stub.Critique(critique_request())
        served.clear()
        for number in range(10 * count * TURN_CALLS):
            await stub.Critique(large if number % TURN_CALLS == 0 else critique_request())
    least, most = min(served.values()), max(served.values())
    assert least > most / 2, served


@pytest.mark.parametrize("count", [1, 2, 3, 5])
async def test_calls_go_to_all_replicas_in_equal_parts(count: int) -> None:
    served: Counter[int] = Counter()

    def counting(index: int) -> Any:
        async def count(request: CritiqueRequest, context: Any) -> CritiqueResponse:
            assert is_carried(context)
            served[index] += 1
            await asyncio.sleep(0)
            return CritiqueResponse()

        return count

    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(serve(critic(counting(index)))) for index in range(count)]
        targets = ",".join(server.target for server in servers)
        stub = critics(await stack.enter_async_context(open_channel(f"ipv4:{targets}", always())))

        async def call() -> None:
            await stub.Critique(critique_request())

        async with asyncio.timeout(30):
            while len(served) < count:
                await call()
        served.clear()
        calls = 8 * count * TURN_CALLS
        for _ in range(calls // 32):
            await asyncio.gather(*(call() for _ in range(32)))
    assert sum(served.values()) == calls
    assert all(0.5 * calls / count <= served[index] <= 1.5 * calls / count for index in range(count)), served


async def test_a_replica_that_is_new_gets_calls() -> None:
    served: Counter[str] = Counter()

    def counting(name: str) -> Any:
        async def count(request: CritiqueRequest, context: Any) -> CritiqueResponse:
            served[name] += 1
            return CritiqueResponse()

        return count

    async with serve(critic(counting("first"))) as first:
        second = Server([critic(counting("second"))], server_settings())
        await second.start()
        port = second.port
        await second.drain()
        async with open_channel(f"ipv4:{first.target},127.0.0.1:{port}", always()) as channel:
            stub = critics(channel)
            await asyncio.gather(*(stub.Critique(critique_request()) for _ in range(50)))
            assert set(served) == {"first"}
            async with Server([critic(counting("second"))], server_settings(port=port)):
                async with asyncio.timeout(30):
                    while not served["second"]:
                        await stub.Critique(critique_request())


async def test_a_replica_that_stops_fails_no_call() -> None:
    async def work(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        await asyncio.sleep(0.001)
        return CritiqueResponse()

    async with serve(critic(work)) as stays:
        goes = Server([critic(work)], server_settings(drain_delay_seconds=0.5))
        await goes.start()
        async with open_channel(f"ipv4:{stays.target},{goes.target}", always()) as channel:
            stub = critics(channel)
            stopped = asyncio.Event()

            async def calling() -> None:
                while not stopped.is_set():
                    await stub.Critique(critique_request())

            async with asyncio.TaskGroup() as callers:
                for _ in range(16):
                    callers.create_task(calling())
                await asyncio.wait_for(goes.drain(), 30)
                stopped.set()


async def test_a_tunnel_that_nobody_uses_holds_up_no_server() -> None:
    async with (
        serve(critic(silent), drain_grace_seconds=60) as server,
        open_channel(server.target, always()) as channel,
    ):
        await critics(channel).Critique(critique_request())
        await asyncio.wait_for(server.drain(), 20)


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


async def test_a_server_that_has_no_tunnels_is_called_one_by_one() -> None:
    calls = 0

    async def count(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        nonlocal calls
        calls += 1
        return CritiqueResponse()

    server = grpc.aio.server()
    critic_service_pb2_grpc.add_CriticServiceServicer_to_server(FunctionCritic(count), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}", always()) as channel:
            stub = critics(channel)
            for _ in range(3):
                await asyncio.gather(*(stub.Critique(critique_request()) for _ in range(20)))
    finally:
        await server.stop(None)
    assert calls == 60


@pytest.mark.parametrize(("retry_after", "calls"), [(0.0, 2), (None, 2)], ids=["with a pushback", "at once"])
async def test_a_replica_that_cannot_just_now_is_asked_again(retry_after: float | None, calls: int) -> None:
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


async def test_nobody_at_the_address_fails_as_ever() -> None:
    async with open_channel("127.0.0.1:1", always()) as channel:
        calls = [
            asyncio.ensure_future(_result(critics(channel).Critique(critique_request()))) for _ in range(5)
        ]
        results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 30)
    assert [result.code() for result in results if isinstance(result, grpc.aio.AioRpcError)] == [
        grpc.StatusCode.UNAVAILABLE
    ] * 5


async def test_a_channel_that_is_closed_cancels_its_calls() -> None:
    begun = asyncio.Event()

    async def forever(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        begun.set()
        await asyncio.Event().wait()
        return CritiqueResponse()

    async with serve(critic(forever)) as server:
        channel = open_channel(server.target, always())
        call = critics(channel).Critique(critique_request())
        await begun.wait()
        await asyncio.wait_for(channel.close(), 10)
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_a_channel_that_is_closed_with_grace_lets_calls_be_made_again() -> None:
    """Such as one whose certificate was replaced (see ``RotatingChannel``)."""
    refused = asyncio.Event()

    async def at_first_not(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        if refused.is_set():
            return CritiqueResponse()
        refused.set()
        raise ServiceError(
            grpc.StatusCode.UNAVAILABLE, reasons.ERROR_REASON_SHUTTING_DOWN, "not now", retry_after=0.2
        )

    async with serve(critic(at_first_not)) as server:
        channel = open_channel(server.target, always())
        call = critics(channel).Critique(critique_request())
        await refused.wait()
        await asyncio.wait_for(channel.close(10), 20)
        assert await call == CritiqueResponse()


async def test_a_call_on_a_closed_channel_fails_as_by_itself() -> None:
    async with serve(critic(silent)) as server:
        channel = open_channel(server.target, always())
        await channel.close()
        with pytest.raises(grpc.aio.UsageError):
            await critics(channel).Critique(critique_request())


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


async def test_nothing_is_left_behind() -> None:
    before = asyncio.all_tasks()
    async with carried_critic(silent) as stub:
        await asyncio.gather(*(stub.Critique(critique_request()) for _ in range(500)))
    await until(lambda: _own(asyncio.all_tasks() - before) == set())


def _own(tasks: set[asyncio.Task[Any]]) -> set[str]:
    return {name for task in tasks if "tunnel" in (name := str(task.get_coro()))}


async def test_each_call_is_its_own_callers(tmp_path: Path) -> None:
    """A tunnel that somebody opened lets nobody else in."""
    served: list[tuple[str, bool]] = []

    async def note(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        served.append((request.task.goal, is_carried(context)))
        return CritiqueResponse()

    operator, viewer = holder("team-a", "operator"), holder("team-a", "viewer")
    expired, unknown = holder("team-a", "operator", expired=True), holder("team-b", "operator")
    settings = token_settings(tmp_path, operator, viewer, expired)
    async with (
        Server([critic(note)], server_settings(), settings) as server,
        open_channel(server.target, always()) as channel,
    ):

        async def code(goal: str, token: str | None) -> grpc.StatusCode:
            metadata = () if token is None else (("authorization", f"Bearer {token}"),)
            call = critics(channel).Critique(critique_request(goal=goal), metadata=metadata)
            answered: grpc.StatusCode = await call.code()
            return answered

        assert await code("the operator's", operator.token) is grpc.StatusCode.OK
        assert await code("the viewer's", viewer.token) is grpc.StatusCode.PERMISSION_DENIED
        for token in (expired.token, unknown.token, None):
            assert await code("a stranger's", token) is grpc.StatusCode.UNAUTHENTICATED
        assert await code("the operator's", operator.token) is grpc.StatusCode.OK
    assert served == [("the operator's", True)] * 2


async def test_who_may_not_open_a_tunnel_is_refused_by_itself(tmp_path: Path) -> None:
    settings = token_settings(tmp_path, holder("team-a", "operator"))
    async with (
        Server([critic(silent)], server_settings(), settings) as server,
        open_channel(server.target, always()) as channel,
    ):
        calls = [critics(channel).Critique(critique_request()) for _ in range(10)]
        codes = {await call.code() for call in calls}
    assert codes == {grpc.StatusCode.UNAUTHENTICATED}
