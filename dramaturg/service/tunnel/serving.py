"""Serves the calls that come in tunnels."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextvars import Context as Variables
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from dramaturg.api.tunnel.v1 import tunnel_service_pb2_grpc
from dramaturg.api.tunnel.v1.tunnel_service_pb2 import Answer, Call, OpenTunnelRequest, OpenTunnelResponse
from dramaturg.service.errors import invalid
from dramaturg.service.metadata import Pair
from dramaturg.service.tunnel.context import CarriedContext
from dramaturg.service.tunnel.metadata import pack
from dramaturg.service.tunnel.outbox import MESSAGE_BYTES, Outbox

if TYPE_CHECKING:
    from dramaturg.service.interceptors.calls import Context, Handler

logger = logging.getLogger(__name__)


class CallDetails(NamedTuple):
    """What is known of a call before its handler is."""

    method: str
    """The full name of the method."""
    invocation_metadata: tuple[Pair, ...]
    """What came with the call."""


FindHandler = Callable[[CallDetails], Awaitable["Handler | None"]]
"""Finds what serves a call, with all that a server does around it. ``None``: nothing does."""


class TunnelServicer(tunnel_service_pb2_grpc.TunnelServiceServicer):
    """Serves each call of a tunnel by the handler that would serve it alone.

    Args:
        find: Finds the handlers.
    """

    def __init__(self, find: FindHandler) -> None:
        self._find = find
        self._name = os.urandom(8).hex()

    async def OpenTunnel(  # type: ignore[override]  # writes to the context, from several tasks
        self, requests: AsyncIterator[OpenTunnelRequest], context: Context
    ) -> None:
        """Serves until the client half-closes and every call is answered."""

        async def send(answers: Sequence[Answer]) -> None:
            await context.write(OpenTunnelResponse(answers=answers))

        await context.write(OpenTunnelResponse(server=self._name))
        outbox = Outbox[Answer](send)
        under_way: dict[int, asyncio.Task[None]] = {}
        sending = asyncio.create_task(outbox.run())
        # It fails where the client has gone, and then this is cancelled too.
        sending.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            async for request in requests:
                for call in request.calls:
                    if call.number in under_way:
                        raise invalid("calls.number", f"is that of another call under way: {call.number}")
                    serving = self._serve(call, context, outbox)
                    # A call begins with nothing of the tunnel's own: neither its caller nor its trace.
                    task = asyncio.create_task(serving, context=Variables())
                    under_way[call.number] = task
                    task.add_done_callback(partial(_forget, under_way, call.number))
                # After the calls: one may have been given up in the moment in which it began.
                for number in request.cancelled_calls:
                    if number in under_way:
                        under_way[number].cancel()
                await outbox.room()
            if under_way:
                await asyncio.wait([*under_way.values()])
            outbox.close()
            await sending
        finally:
            sending.cancel()
            for task in under_way.values():
                task.cancel()
            if under_way:
                await asyncio.wait([*under_way.values()])

    async def _serve(self, call: Call, tunnel: Context, outbox: Outbox[Answer]) -> None:
        context = CarriedContext(tunnel, call)
        try:
            handler = await self._find(CallDetails(call.method, context.invocation_metadata()))
            if handler is None:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            response = await _response(handler, call.request, context)
        except grpc.aio.AbortError:
            pass
        except Exception:
            # What is around the handlers lets nothing else through.
            logger.exception("%s failed in a tunnel", call.method)
            context.set_code(grpc.StatusCode.UNKNOWN)
        else:
            if context.code() is grpc.StatusCode.OK:
                for answer in _parts(call.number, response, context):
                    outbox.put(answer, len(answer.response))
                return
        outbox.put(_failure(call.number, context), 0)


def _forget(under_way: dict[int, asyncio.Task[None]], number: int, task: asyncio.Task[None]) -> None:
    del task
    under_way.pop(number, None)


async def _response(handler: Any, request: bytes, context: CarriedContext) -> bytes:
    serializer = handler.response_serializer
    if handler.request_streaming:  # one that does not read what it will refuse
        return bytes(serializer(await handler.stream_unary(_nothing(), context)))
    try:
        message = handler.request_deserializer(request)
    except Exception:
        # As gRPC says it of a call of its own.
        await context.abort(grpc.StatusCode.INTERNAL, "Exception deserializing request!")
    answer = await handler.unary_unary(message, context)
    return bytes(serializer(answer))


async def _nothing() -> AsyncIterator[Any]:
    return
    yield


def _parts(number: int, response: bytes, context: CarriedContext) -> Iterator[Answer]:
    last = max(0, len(response) - 1) // MESSAGE_BYTES
    for index in range(last):
        part = response[index * MESSAGE_BYTES : (index + 1) * MESSAGE_BYTES]
        yield Answer(call=number, response=part, more=True)
    rest = response[last * MESSAGE_BYTES :]
    yield Answer(call=number, response=rest, trailing_metadata=pack(context.trailing_metadata()))


def _failure(number: int, context: CarriedContext) -> Answer:
    return Answer(
        call=number,
        code=context.code().value[0],
        details=context.details(),
        trailing_metadata=pack(context.trailing_metadata()),
    )
