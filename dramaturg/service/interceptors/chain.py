"""Runs the interceptors around every call.

gRPC has four kinds of handlers, and an interceptor of its own must build each one anew. Here one such
interceptor turns every kind into a ``Call``, which passes a chain of [Interceptor]s.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from dramaturg.service.auth.guard import Guard
from dramaturg.service.interceptors.call import Call, DamagedMessage, Interceptor, Proceed
from dramaturg.service.rpc import INFRASTRUCTURE, Context, Handler
from dramaturg.service.wire_counts import SMALL_BYTES, find_excess


class InterceptorChain(grpc.aio.ServerInterceptor):
    """Serves every call through the interceptors.

    Args:
        guard: Authenticates callers before their requests are read.
        interceptors: The interceptors, the outermost first.
        further: Interceptors of gRPC that run inside them, the outermost first.
    """

    def __init__(
        self,
        guard: Guard,
        interceptors: Sequence[Interceptor],
        further: Sequence[grpc.aio.ServerInterceptor] = (),
    ) -> None:
        self._guard = guard
        self._further = tuple(further)
        self._interceptors = tuple(interceptors)
        self._handlers: dict[str, tuple[Handler, Handler]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the handler; the wrapped one is kept, since the next call of the method has the same."""
        method = str(handler_call_details.method)
        if method.startswith(INFRASTRUCTURE) and self._guard.is_open(method):
            return await continuation(handler_call_details)
        if not self._guard.authenticate(method, handler_call_details.invocation_metadata or ()):
            return self._wrap(_unread_call(), method)
        for interceptor in reversed(self._further):
            continuation = partial(interceptor.intercept_service, continuation)
        handler = await continuation(handler_call_details)
        if handler is None:
            return self._wrap(_unknown_method(), method)
        known = self._handlers.get(method)
        if known is None or known[0] is not handler:
            known = self._handlers[method] = handler, self._wrap(handler, method)
        return known[1]

    def _wrap(self, handler: Handler, method: str) -> Handler:
        requests, responses = handler.request_streaming, handler.response_streaming
        arity = f"{'stream' if requests else 'unary'}_{'stream' if responses else 'unary'}"
        chain: Proceed = _servicer(getattr(handler, arity), stream=responses)
        for interceptor in reversed(self._interceptors):
            chain = partial(interceptor.intercept, proceed=chain)

        async def serve(request: Any, context: Context) -> Any:
            call = Call(method, context, *((request, None) if requests else request))
            if responses:
                call.send = context.write
            else:
                call.send = partial(_keep, call)
            await chain(call)
            return call.response

        wrapped: Handler = getattr(grpc, f"{arity}_rpc_method_handler")(
            serve,
            (_readable if requests else _sized)(handler.request_deserializer),
            handler.response_serializer,
        )
        return wrapped


def _servicer(behaviour: Any, *, stream: bool) -> Proceed:
    """The end of the chain: the method of the servicer."""

    async def serve(call: Call) -> None:
        answer = behaviour(call.request, call.context)
        if inspect.isawaitable(answer):
            # Of a stream: a coroutine that writes to the context.
            answer = await answer
            if not stream:
                await call.send(answer)
        elif stream:
            async with aclosing(answer):
                async for response in answer:
                    await call.send(response)
        else:
            await call.send(answer)

    return serve


async def _keep(call: Call, response: Any) -> None:
    call.response = response


def _sized(parse: Callable[[bytes], Any] | None) -> Callable[[bytes], tuple[Any, int]]:
    """Reads a message together with its size: a message has to be encoded anew to tell its size."""
    read = _readable(parse)
    return lambda data: (read(data), len(data))


def _readable(parse: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    """Reads a message. gRPC would end the call of a damaged one with UNKNOWN and the name of an exception."""
    if parse is None:
        return lambda data: data
    descriptor = getattr(getattr(parse, "__self__", None), "DESCRIPTOR", None)

    def read(data: bytes) -> Any:
        if len(data) > SMALL_BYTES and isinstance(descriptor, Descriptor):
            excess = find_excess(data, descriptor)
            if excess is not None:
                return DamagedMessage(excess if excess.field else None)
        try:
            return parse(data)
        except DecodeError:
            return DamagedMessage()

    return read


def _unread_call() -> Handler:
    """Stands for a method whose call the guard will refuse: handlers of streams alone do not read at once."""

    async def refuse(requests: object, context: Context) -> object:
        del requests, context
        raise AssertionError("a caller without an identity was authorized")

    return grpc.stream_unary_rpc_method_handler(refuse)


def _unknown_method() -> Handler:
    async def refuse(request: object, context: Context) -> object:
        del request, context
        raise NotImplementedError

    return grpc.unary_unary_rpc_method_handler(refuse)
