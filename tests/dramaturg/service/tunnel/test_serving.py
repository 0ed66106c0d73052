"""What a server makes of a tunnel, whoever opens it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1.critic_service_pb2 import CritiqueRequest, CritiqueResponse
from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.api.tunnel.v1.tunnel_service_pb2 import Answer, Call, Metadatum, OpenTunnelRequest
from dramaturg.api.tunnel.v1.tunnel_service_pb2_grpc import TunnelServiceStub
from dramaturg.service.errors import from_rpc_error
from dramaturg.service.server import Server
from dramaturg.service.tunnel.outbox import MESSAGE_BYTES
from tests.support.grpc_servers import (
    ARITIES,
    Critique,
    arities,
    critic,
    critique_request,
    serve,
    silent,
    until,
)

CRITIQUE = "/dramaturg.api.agents.v1.CriticService/Critique"


class Opened:
    """A tunnel that is spoken to by hand."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.server = ""
        self._read: deque[Answer] = deque()

    async def say(self, *calls: Call, cancelled: Sequence[int] = ()) -> None:
        await self.stream.write(OpenTunnelRequest(calls=calls, cancelled_calls=cancelled))

    async def answers(self) -> AsyncIterator[Answer]:
        while self._read or await self._reads():
            yield self._read.popleft()

    async def answer(self) -> Answer:
        return await anext(self.answers())

    async def _reads(self) -> bool:
        response = await self.stream.read()
        if response is grpc.aio.EOF:
            return False
        self._read.extend(response.answers)
        return True


@asynccontextmanager
async def opened(server: Server) -> AsyncIterator[Opened]:
    """Opens a tunnel."""
    async with grpc.aio.insecure_channel(server.target) as channel:
        made = Opened(TunnelServiceStub(channel).OpenTunnel())
        made.server = (await made.stream.read()).server
        yield made


@asynccontextmanager
async def opened_critic(critique: Critique, **settings: Any) -> AsyncIterator[Opened]:
    """Serves a critic and opens a tunnel to it."""
    async with serve(critic(critique), **settings) as server, opened(server) as tunnel:
        yield tunnel


def call(number: int, request: CritiqueRequest | None = None, method: str = CRITIQUE) -> Call:
    """A call."""
    request = critique_request() if request is None else request
    return Call(number=number, method=method, request=request.SerializeToString())


async def test_a_server_tells_its_name_at_once_and_each_its_own() -> None:
    async with (
        serve(critic(silent)) as first,
        serve(critic(silent)) as second,
        opened(first) as one,
        opened(first) as again,
        opened(second) as other,
    ):
        assert one.server
        assert one.server == again.server != other.server


async def test_answers_come_when_they_are_ready() -> None:
    release = asyncio.Event()

    async def work(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        if request.task.goal == "slow":
            await release.wait()
        return CritiqueResponse()

    async with opened_critic(work) as tunnel:
        await tunnel.say(call(1, critique_request(goal="slow")), call(2))
        assert (await tunnel.answer()).call == 2
        release.set()
        assert (await tunnel.answer()).call == 1


async def test_what_is_under_way_is_answered_after_the_half_close() -> None:
    release = asyncio.Event()

    async def work(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        await release.wait()
        return CritiqueResponse()

    async with opened_critic(work) as tunnel:
        await tunnel.say(call(1), call(2))
        await tunnel.stream.done_writing()
        release.set()
        assert {answer.call async for answer in tunnel.answers()} == {1, 2}
        assert await tunnel.stream.code() is grpc.StatusCode.OK


async def test_a_call_that_is_cancelled_as_it_begins_is_not_served() -> None:
    served: list[str] = []

    async def work(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        served.append(request.task.goal)
        return CritiqueResponse()

    async with opened_critic(work) as tunnel:
        await tunnel.say(call(1, critique_request(goal="cancelled")), call(2), cancelled=[1, 77])
        assert (await tunnel.answer()).call == 2
    assert served == ["Bake a cake"]


async def test_a_tunnel_that_breaks_ends_its_calls() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return CritiqueResponse()

    async with serve(critic(work)) as server, opened(server) as tunnel:
        await tunnel.say(call(1))
        await begun.wait()
        tunnel.stream.cancel()
        await asyncio.wait_for(ended.wait(), 10)


async def test_a_number_is_free_again_when_its_call_has_ended() -> None:
    async with opened_critic(silent) as tunnel:
        for _ in range(3):
            await tunnel.say(call(1))
            assert (await tunnel.answer()).call == 1


async def test_a_number_of_a_call_under_way_ends_the_tunnel() -> None:
    async def forever(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        await asyncio.Event().wait()
        return CritiqueResponse()

    async with opened_critic(forever) as tunnel:
        await tunnel.say(call(1), call(1))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asyncio.wait_for(tunnel.answer(), 10)
    error = from_rpc_error(raised.value)
    assert (error.code, error.reason) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        reasons.ERROR_REASON_FIELD_INVALID,
    )
    assert [violation.field for violation in error.violations] == ["calls.number"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (Call(), "method"),
        (Call(method="x" * 301), "method"),
        (Call(method=CRITIQUE, request=bytes((1 << 20) + 1)), "request"),
        (Call(method=CRITIQUE, metadata=[Metadatum(key="x", text="x")] * 65), "metadata"),
        (Call(method=CRITIQUE, metadata=[Metadatum(key="x", text="x" * 8193)]), "metadata[0].text"),
        (Call(method=CRITIQUE, metadata=[Metadatum(text="x")]), "metadata[0].key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_call_that_breaks_a_limit_is_refused_alone(wrong: Call, field: str) -> None:
    wrong.number = 1
    async with opened_critic(silent) as tunnel:
        await tunnel.say(wrong, call(2))
        answers = {answer.call: answer for answer in (await tunnel.answer(), await tunnel.answer())}
    details = {one.key: one.binary for one in answers[1].trailing_metadata}["grpc-status-details-bin"]
    assert answers[1].code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert answers[1].details.startswith(field)
    assert field.encode() in details
    assert answers[2].code == 0


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (OpenTunnelRequest(calls=[Call(number=number, method="x") for number in range(1001)]), "calls"),
        (OpenTunnelRequest(cancelled_calls=range(1001)), "cancelled_calls"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_who_says_too_much_at_once_loses_the_tunnel(wrong: OpenTunnelRequest, field: str) -> None:
    async with opened_critic(silent) as tunnel:
        await tunnel.stream.write(wrong)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asyncio.wait_for(tunnel.answer(), 10)
    assert [violation.field for violation in from_rpc_error(raised.value).violations] == [field]


async def test_a_server_of_small_messages_has_no_tunnels() -> None:
    async with (
        serve(critic(silent), max_message_bytes=100_000) as server,
        grpc.aio.insecure_channel(server.target) as channel,
    ):
        stream: Any = TunnelServiceStub(channel).OpenTunnel()
        await stream.write(OpenTunnelRequest(calls=[call(1)]))
        assert await asyncio.wait_for(stream.code(), 10) is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    "method",
    [
        "/nobody.v1.Knows/This",
        "nonsense",
        f"/{ARITIES}/UnaryStream",
        f"/{ARITIES}/StreamUnary",
        f"/{ARITIES}/StreamStream",
        "/dramaturg.api.tunnel.v1.TunnelService/OpenTunnel",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
async def test_only_unary_methods_that_are_served_are_carried(method: str) -> None:
    async def work() -> None:
        raise AssertionError("it was served")

    async with serve(arities(work)) as server, opened(server) as tunnel:
        await tunnel.say(call(1, method=method))
        answer = await tunnel.answer()
    assert (answer.call, answer.code) == (1, grpc.StatusCode.UNIMPLEMENTED.value[0])


async def test_every_part_but_the_last_says_that_more_follows() -> None:
    async def talk(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        response = CritiqueResponse()
        response.assessment.verdicts.add(rationale="a" * 3 * MESSAGE_BYTES)
        return response

    async with opened_critic(talk) as tunnel:
        await tunnel.say(call(1))
        await tunnel.stream.done_writing()
        parts = [answer async for answer in tunnel.answers()]
    assert [part.more for part in parts] == [True, True, True, False]
    whole = CritiqueResponse.FromString(b"".join(part.response for part in parts))
    assert len(whole.assessment.verdicts[0].rationale) == 3 * MESSAGE_BYTES


async def test_who_does_not_read_is_not_read_either() -> None:
    """Or a client that asks and asks would fill the server's memory with answers."""
    served = 0

    async def talk(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        nonlocal served
        served += 1
        response = CritiqueResponse()
        response.assessment.verdicts.add(rationale="a" * 1_000_000)
        return response

    async with opened_critic(talk) as tunnel:

        async def ask() -> None:
            for first in range(0, 4000, 10):
                await tunnel.say(*(call(first + index) for index in range(10)))

        asking = asyncio.create_task(ask())
        settled = -1
        while settled != served or not served:
            settled = served
            await asyncio.sleep(0.5)  # whatever else is served in this time
        assert served < 200
        while served == settled:
            await tunnel.answer()
        asking.cancel()


async def test_tunnels_are_as_many_as_calls() -> None:
    async with serve(critic(silent), max_concurrent_calls=3) as server:
        async with opened(server), opened(server), opened(server):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                async with opened(server):
                    pass
        assert from_rpc_error(raised.value).reason == reasons.ERROR_REASON_OVERLOADED
        await until_opened(server)


async def until_opened(server: Server) -> None:
    """Waits until a tunnel can be opened."""
    done = asyncio.Event()

    async def attempt() -> None:
        while not done.is_set():
            try:
                async with opened(server):
                    done.set()
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.01)

    task = asyncio.create_task(attempt())
    await until(done.is_set)
    await task


async def test_a_server_that_stops_lets_calls_in_tunnels_end() -> None:
    release = asyncio.Event()

    async def work(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        await release.wait()
        return CritiqueResponse()

    async with serve(critic(work)) as server, opened(server) as tunnel:
        await tunnel.say(call(1))
        await tunnel.stream.done_writing()
        draining = asyncio.create_task(server.drain())
        await asyncio.sleep(0)
        release.set()
        assert (await tunnel.answer()).code == 0
        await asyncio.wait_for(draining, 10)
