"""Serves the calls that come in tunnels."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import Context as Variables
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import grpc

from dramaturg.api.tunnel.v1 import tunnel_service_pb2_grpc
from dramaturg.api.tunnel.v1.tunnel_service_pb2 import Answer, Call, OpenTunnelRequest, OpenTunnelResponse
from dramaturg.service.errors import ServiceError, invalid
from dramaturg.service.interceptors import error_mapping
from dramaturg.service.metadata import Pair
from dramaturg.service.tunnel.context import CarriedContext
from dramaturg.service.tunnel.metadata import pack
from dramaturg.service.tunnel.outbox import MESSAGE_BYTES, Outbox
from dramaturg.service.validation import validate

if TYPE_CHECKING:
    from dramaturg.service.interceptors.calls import Context, Handler

logger = logging.getLogger(__name__)


MOST_AT_ONCE = 1000
"""The most calls that a client begins, or gives up, with one message."""


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
        # Not to be able to send is to have no client any more.
        with suppress(grpc.aio.BaseError):
            await context.write(OpenTunnelResponse(server=self._name))
            async with _Carried(self._find, context) as carried:
                async for request in requests:
                    carried.take(request)
                    await carried.outbox.room()
                await carried.ended()


class _Carried:
    """The calls of one tunnel. At the end of an ``async with`` block those that are left are cancelled."""

    def __init__(self, find: FindHandler, tunnel: Context) -> None:
        self._find = find
        self._tunnel = tunnel
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self.outbox = Outbox[Answer](self._send)

    async def __aenter__(self) -> Self:
        self._sending = asyncio.create_task(self.outbox.run())
        # It fails where the client has gone, which ends the tunnel too.
        self._sending.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sending.cancel()
        for task in self._under_way.values():
            task.cancel()
        if self._under_way:
            await asyncio.wait([*self._under_way.values()])

    def take(self, request: OpenTunnelRequest) -> None:
        """Does what the client says.

        Raises:
            ServiceError: INVALID_ARGUMENT: it says too much at once, or what contradicts itself.
        """
        for name, said in (("calls", request.calls), ("cancelled_calls", request.cancelled_calls)):
            if len(said) > MOST_AT_ONCE:
                raise invalid(name, f"has {len(said)} elements; at most {MOST_AT_ONCE} are allowed")
        for call in request.calls:
            if call.number in self._under_way:
                raise invalid("calls.number", f"is that of another call under way: {call.number}")
            # A call begins with nothing of the tunnel's own: neither its caller nor its trace.
            task = asyncio.create_task(self._serve(call), context=Variables())
            self._under_way[call.number] = task
            task.add_done_callback(partial(self._forget, call.number))
        # After the calls: one may have been given up in the moment in which it began.
        for number in request.cancelled_calls:
            if number in self._under_way:
                self._under_way[number].cancel()

    async def ended(self) -> None:
        """Waits until every call is answered and every answer sent."""
        if self._under_way:
            await asyncio.wait([*self._under_way.values()])
        self.outbox.close()
        await self._sending

    async def _serve(self, call: Call) -> None:
        context = CarriedContext(self._tunnel, call)
        try:
            for answer in await self._answers(call, context):
                self.outbox.put(answer, len(answer.response) + len(answer.details))
        except Exception:
            # What is around the handlers lets nothing through, so it is a fault of what is sent.
            logger.exception("%s has no answer that can be sent", call.method)
            self.outbox.put(Answer(call=call.number, code=grpc.StatusCode.INTERNAL.value[0]), 0)

    async def _answers(self, call: Call, context: CarriedContext) -> Sequence[Answer]:
        try:
            response = await self._response(call, context)
        except grpc.aio.AbortError:
            return [_failure(call.number, context)]
        if context.code() is grpc.StatusCode.OK:
            return _parts(call.number, response, context)
        return [_failure(call.number, context)]

    async def _response(self, call: Call, context: CarriedContext) -> bytes:
        try:
            validate(call, call.ByteSize())
        except ServiceError as error:
            await error_mapping.abort(error, call.method, context)
        handler: Any = await self._find(CallDetails(call.method, context.invocation_metadata()))
        if handler is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        if handler.request_streaming:  # one that does not read what it will refuse
            return bytes(handler.response_serializer(await handler.stream_unary(_nothing(), context)))
        try:
            message = handler.request_deserializer(call.request)
        except Exception:
            # As gRPC says it of a call of its own.
            await context.abort(grpc.StatusCode.INTERNAL, "Exception deserializing request!")
        return bytes(handler.response_serializer(await handler.unary_unary(message, context)))

    async def _send(self, answers: Sequence[Answer]) -> None:
        await self._tunnel.write(OpenTunnelResponse(answers=answers))

    def _forget(self, number: int, task: asyncio.Task[None]) -> None:
        del task
        self._under_way.pop(number, None)


async def _nothing() -> AsyncIterator[Any]:
    return
    yield


def _parts(number: int, response: bytes, context: CarriedContext) -> Sequence[Answer]:
    last = max(0, len(response) - 1) // MESSAGE_BYTES * MESSAGE_BYTES
    parts = [
        Answer(call=number, response=response[start : start + MESSAGE_BYTES], more=True)
        for start in range(0, last, MESSAGE_BYTES)
    ]
    trailing = pack(context.trailing_metadata())
    return [*parts, Answer(call=number, response=response[last:], trailing_metadata=trailing)]


def _failure(number: int, context: CarriedContext) -> Answer:
    return Answer(
        call=number,
        code=context.code().value[0],
        details=context.details(),
        trailing_metadata=pack(context.trailing_metadata()),
    )
