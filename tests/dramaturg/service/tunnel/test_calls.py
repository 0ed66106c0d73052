"""A call in a tunnel is, for its caller and for the servicer, the call that it would be by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1.critic_service_pb2 import CritiqueRequest, CritiqueResponse
from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.service import context as request_context
from dramaturg.service.channel import open_channel
from dramaturg.service.context import REQUEST_ID_METADATA
from dramaturg.service.errors import ServiceError, from_rpc_error
from dramaturg.service.settings import ChannelSettings
from dramaturg.service.tunnel.channel import LARGEST_BYTES
from dramaturg.service.tunnel.outbox import MESSAGE_BYTES
from tests.support.grpc_servers import critic, critique_request, serve, silent, until
from tests.support.tunnels import NEVER, always, carried_critic, critics, is_carried

CRITIQUE = "/dramaturg.api.agents.v1.CriticService/Critique"
each_way = pytest.mark.parametrize("way", [always(), NEVER], ids=["carried", "alone"])


async def failing(request: CritiqueRequest, context: Any) -> CritiqueResponse:
    """Fails in the way that the goal names."""
    match request.task.goal:
        case "service error":
            raise ServiceError(
                grpc.StatusCode.FAILED_PRECONDITION,
                reasons.ERROR_REASON_BUDGET_EXHAUSTED,
                "the budget is spent, naïvely",
                metadata={"budget": "3"},
                retry_after=2.5,
            )
        case "abort":
            await context.abort(
                grpc.StatusCode.ABORTED, "no", (("x-why", "for no reason"), ("y-bin", b"\x00\xff"))
            )
        case "bug":
            raise RuntimeError("a secret")
        case "not implemented":
            raise NotImplementedError
        case "code without a message":
            context.set_code(grpc.StatusCode.NOT_FOUND)
            context.set_details("nothing there")
        case "code as a number":
            context.set_code(grpc.StatusCode.NOT_FOUND.value[0])
            context.set_details("nothing there")
        case "abort after what was set":
            context.set_trailing_metadata((("x-why", "before"),))
            context.set_details("said before")
            await context.abort(grpc.StatusCode.ABORTED)
    context.set_trailing_metadata((("x-after", "words"),))
    return CritiqueResponse()


async def ending(settings: ChannelSettings, request: CritiqueRequest) -> tuple[Any, ...]:
    """All that a caller can see of a call's end."""
    async with serve(critic(failing)) as server, open_channel(server.target, settings) as channel:
        call = critics(channel).Critique(request, metadata=((REQUEST_ID_METADATA, "r1"),))
        reason = raised = None
        try:
            await call
        except grpc.aio.AioRpcError as error:
            reason, raised = from_rpc_error(error), error.code()
        trailing = {key: value for key, value in await call.trailing_metadata() if key != "date"}
        return (
            raised,
            await call.code(),
            await call.details(),
            trailing,
            reason and (reason.code, reason.reason, reason.message, reason.metadata, reason.retry_after),
            call.done(),
            call.cancelled(),
        )


@pytest.mark.parametrize(
    "goal",
    [
        "well",
        "service error",
        "abort",
        "abort after what was set",
        "bug",
        "not implemented",
        "code without a message",
        "code as a number",
        "",
    ],
)
async def test_it_ends_as_by_itself(goal: str) -> None:
    request = critique_request(goal=goal)
    assert await ending(always(), request) == await ending(NEVER, request)


@each_way
async def test_the_servicer_sees_who_calls_and_until_when(way: ChannelSettings) -> None:
    seen: list[Any] = []

    async def note(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        current = request_context.current()
        assert current is not None
        seen.append(
            (is_carried(context), current.request_id, current.method, dict(context.invocation_metadata()))
        )
        assert 3 < context.time_remaining() <= 5
        assert 3 < (current.remaining() or 0) <= 5
        assert context.peer().startswith("ipv4:127.0.0.1:")
        assert context.auth_context() is not None
        return CritiqueResponse()

    async with serve(critic(note)) as server, open_channel(server.target, way) as channel:
        metadata = ((REQUEST_ID_METADATA, "r1"), ("x-own", "1"), ("x-own-bin", b"\x00"))
        await critics(channel).Critique(critique_request(), timeout=5, metadata=metadata)
    carried, request_id, method, brought = seen[0]
    assert carried is (way is not NEVER)
    assert (request_id, method) == ("r1", CRITIQUE)
    assert (brought["x-own"], brought["x-own-bin"]) == ("1", b"\x00")


async def test_calls_share_nothing_of_their_contexts() -> None:
    seen: list[str] = []

    async def note(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        await asyncio.sleep(0)
        current = request_context.current()
        seen.append(current.request_id if current else "")
        return CritiqueResponse()

    async with carried_critic(note) as stub:
        names = [f"r{number}" for number in range(100)]
        calls = [stub.Critique(critique_request(), metadata=((REQUEST_ID_METADATA, name),)) for name in names]
        await asyncio.gather(*calls)
    assert sorted(seen) == sorted(names)


@pytest.mark.parametrize(
    "metadata",
    [
        [("x-many", "x")] * 65,
        [("x-long", "x" * 8000), ("x-longer", "x" * 8193)],
        [("x-text", b"bytes")],
        [("x-blanks", " x ")],
    ],
    ids=["many", "long", "bytes", "blanks"],
)
async def test_unusual_metadata_takes_a_call_of_its_own(metadata: list[tuple[str, str | bytes]]) -> None:
    seen: list[bool] = []

    async def note(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        seen.append(is_carried(context))
        return CritiqueResponse()

    async with carried_critic(note) as stub:
        await stub.Critique(critique_request())
        await stub.Critique(critique_request(), metadata=metadata).code()
        await stub.Critique(critique_request())
    assert seen[0] is seen[-1] is True
    assert seen[1:-1] in ([], [False])  # gRPC itself takes 8 KiB in all


@pytest.mark.parametrize("timeout", [float("inf"), 1e12, 0.0, -1.0])
async def test_an_unusual_timeout_is_what_it_is_by_itself(timeout: float) -> None:
    codes = []
    for way in (always(), NEVER):
        async with serve(critic(silent)) as server, open_channel(server.target, way) as channel:
            codes.append(await critics(channel).Critique(critique_request(), timeout=timeout).code())
    assert codes[0] is codes[1]


async def forever(request: CritiqueRequest, context: Any) -> CritiqueResponse:
    await asyncio.Event().wait()
    return CritiqueResponse()


@each_way
async def test_its_deadline_ends_it(way: ChannelSettings) -> None:
    async with serve(critic(forever)) as server, open_channel(server.target, way) as channel:
        call = critics(channel).Critique(critique_request(), timeout=0.2)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asyncio.wait_for(call, 10)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("by", ["the call", "the task that waits for it"])
async def test_who_gives_it_up_ends_the_work(by: str) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return CritiqueResponse()

    async with carried_critic(work) as stub:
        call = stub.Critique(critique_request())
        task = asyncio.ensure_future(_result(call))
        await begun.wait()
        assert (call if by == "the call" else task).cancel()
        await asyncio.wait_for(ended.wait(), 10)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert call.cancelled()
        assert call.done()
        assert await call.code() is grpc.StatusCode.CANCELLED


async def _result(call: Any) -> Any:
    return await call


@each_way
async def test_a_callback_is_told_the_end(way: ChannelSettings) -> None:
    told: list[Any] = []
    async with serve(critic(silent)) as server, open_channel(server.target, way) as channel:
        call = critics(channel).Critique(critique_request())
        call.add_done_callback(told.append)
        await call
        await until(lambda: len(told) == 1)


async def test_a_large_request_is_made_by_itself() -> None:
    seen: list[bool] = []

    async def note(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        seen.append(is_carried(context))
        return CritiqueResponse()

    def sized(length: int) -> CritiqueRequest:
        request = critique_request()
        while request.ByteSize() < length:
            missing = length - request.ByteSize()
            request.candidate.script.steps.add(text="x" * max(1, min(2000, missing - 6)))
        return request

    async with carried_critic(note) as stub:
        for length in (0, LARGEST_BYTES - 100, LARGEST_BYTES + 100):
            await stub.Critique(sized(length))
    assert seen == [True, True, False]


@pytest.mark.parametrize(
    "length", [0, 1, MESSAGE_BYTES - 5, MESSAGE_BYTES, MESSAGE_BYTES + 1, 5 * MESSAGE_BYTES]
)
async def test_a_long_response_comes_whole(length: int) -> None:
    async def talk(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        return answer(length)

    async with carried_critic(talk) as stub:
        responses: Sequence[Any] = await asyncio.gather(
            *(stub.Critique(critique_request()) for _ in range(3))
        )
    assert all(response == answer(length) for response in responses)


def answer(length: int) -> CritiqueResponse:
    """An answer with so long a text."""
    made = CritiqueResponse()
    made.assessment.verdicts.add(rationale="".join(chr(97 + index % 26) for index in range(length)))
    return made


@each_way
async def test_a_response_above_the_limit_is_refused_alone(way: ChannelSettings) -> None:
    async def talk(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        return answer(2_000_000 if request.task.goal == "much" else 10)

    settings = way.model_copy(update={"max_message_bytes": 1 << 20})
    async with serve(critic(talk)) as server, open_channel(server.target, settings) as channel:
        stub = critics(channel)
        calls = [stub.Critique(critique_request(goal=goal)) for goal in ("little", "much", "little")]
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert results[0] == results[2] == answer(10)
    assert isinstance(results[1], grpc.aio.AioRpcError)
    assert results[1].code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_what_is_no_request_is_refused_alone() -> None:
    async with serve(critic(silent)) as server, open_channel(server.target, always()) as channel:
        wrong = channel.unary_unary(CRITIQUE, lambda text: text, lambda data: data)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await wrong(b"\xff\xff\xff")
        assert raised.value.code() is grpc.StatusCode.INTERNAL
        await critics(channel).Critique(critique_request())


async def test_a_response_that_cannot_be_read_fails_alone() -> None:
    def refuse(data: bytes) -> None:
        raise ValueError(data)

    async with serve(critic(silent)) as server, open_channel(server.target, always()) as channel:
        wrong = channel.unary_unary(CRITIQUE, CritiqueRequest.SerializeToString, refuse)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await wrong(critique_request())
        assert raised.value.code() is grpc.StatusCode.INTERNAL
        await critics(channel).Critique(critique_request())


async def test_what_cannot_be_written_ends_as_by_itself() -> None:
    def refuse(request: object) -> bytes:
        raise ValueError(request)

    codes = []
    for way in (always(), NEVER):
        async with serve(critic(silent)) as server, open_channel(server.target, way) as channel:
            call = channel.unary_unary(CRITIQUE, refuse, CritiqueResponse.FromString)(critique_request())
            codes.append(await call.code())
    assert codes[0] is codes[1] is not grpc.StatusCode.OK


async def test_who_stops_to_ask_how_it_ended_does_not_give_it_up() -> None:
    release = asyncio.Event()

    async def work(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        await release.wait()
        return CritiqueResponse()

    async with carried_critic(work) as stub:
        call = stub.Critique(critique_request())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call.code(), 0.05)
        release.set()
        assert await call == CritiqueResponse()


async def test_more_calls_than_a_server_takes_are_refused_with_a_reason() -> None:
    release = asyncio.Event()

    async def wait(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        await release.wait()
        return CritiqueResponse()

    async with carried_critic(wait, max_concurrent_calls=10) as stub:
        calls = [asyncio.ensure_future(_result(stub.Critique(critique_request()))) for _ in range(50)]
        await until(lambda: sum(call.done() for call in calls) == 40)
        release.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
    refused = [from_rpc_error(error) for error in results if isinstance(error, grpc.aio.AioRpcError)]
    assert len(refused) == 40
    assert {error.reason for error in refused} == {reasons.ERROR_REASON_OVERLOADED}
