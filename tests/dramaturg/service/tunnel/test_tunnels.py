"""When calls share tunnels, and where they go."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1 import critic_service_pb2_grpc
from dramaturg.api.agents.v1.critic_service_pb2 import CritiqueRequest, CritiqueResponse
from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError
from dramaturg.service.server import Server
from dramaturg.service.settings import ChannelSettings
from dramaturg.service.tunnel.tunnels import TURN_CALLS
from tests.support.grpc_servers import (
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


async def test_nobody_at_the_address_fails_as_ever() -> None:
    async with open_channel("127.0.0.1:1", always()) as channel:
        calls = [critics(channel).Critique(critique_request()) for _ in range(5)]
        codes = [await asyncio.wait_for(call.code(), 30) for call in calls]
    assert codes == [grpc.StatusCode.UNAVAILABLE] * 5


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


async def test_nothing_is_left_behind() -> None:
    before = asyncio.all_tasks()
    async with carried_critic(silent) as stub:
        await asyncio.gather(*(stub.Critique(critique_request()) for _ in range(500)))
    await until(lambda: _own(asyncio.all_tasks() - before) == set())


def _own(tasks: set[asyncio.Task[Any]]) -> set[str]:
    return {name for task in tasks if "tunnel" in (name := str(task.get_coro()))}
