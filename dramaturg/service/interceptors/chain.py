"""Runs the interceptors around every call, and reads the rest of the requests of a refused one.

gRPC has four kinds of handlers, and an interceptor of its own must build each one anew. Here one such
interceptor turns every kind into a ``Call``, which passes a chain of [Interceptor]s.

The client of gRPC for Python reports INTERNAL in place of the server's status when its call ends while it
writes a message; other clients read the status. The rest of a stream of requests is therefore read and
dropped.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Protocol

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from dramaturg.service.auth.guard import Guard
from dramaturg.service.context import INFRASTRUCTURE, Context, Handler, Metadata
from dramaturg.service.contract import Answered, Gate
from dramaturg.service.wire_counts import SMALL_BYTES, Excess, find_excess

MAX_BYTES = 64 << 20
"""The most bytes that are dropped for a call; the last message may exceed it."""
MAX_SECONDS = 5.0
"""The time in which they are dropped. Then the call ends, also while its caller writes."""
MAX_CALLS = 16
"""The calls whose requests are dropped at once; a further one ends immediately."""
MAX_UNAUTHENTICATED_CALLS = 4
"""The same for callers that are not authenticated: a message is received whole."""

# A context variable: gRPC calls the deserializer of a method with the bytes of a message alone.
_dropped: ContextVar[bool] = ContextVar("dramaturg_dropped", default=False)


def is_dropped() -> bool:
    """Whether messages that arrive in this task are dropped, so that they need not be decoded."""
    return _dropped.get()


class UnreadRequests:
    """Drops the rest of streams of requests, of a limited number of calls at once."""

    def __init__(self, max_calls: int) -> None:
        self._free = max_calls

    async def drop(self, context: Context) -> None:
        """Reads a stream to its end, or to the limits. The requests are those of the call's own task."""
        if not self._free:
            return
        self._free -= 1
        token = _dropped.set(True)
        left = MAX_BYTES
        try:
            async with asyncio.timeout(MAX_SECONDS):
                while left > 0 and (data := await _read(context)) is not grpc.aio.EOF:
                    left -= len(data)
        except TimeoutError:
            pass
        finally:
            _dropped.reset(token)
            self._free += 1


async def _read(context: Context) -> Any:
    try:
        return await context.read()
    except grpc.aio.BaseError:
        # A read that was cancelled, for example at the deadline, may be in progress still.
        return grpc.aio.EOF


class DamagedMessage:
    """Stands for a request that was not read; ``Validation`` refuses it.

    Args:
        excess: The list with too many elements. None: there is none.
        size: The bytes of a request that is too large. 0: it is not. Without either the bytes are no message
            of the method.
    """

    __slots__ = ("excess", "size")

    def __init__(self, excess: Excess | None = None, size: int = 0) -> None:
        self.excess = excess
        self.size = size


class Call:
    """A call that is served, of any arity.

    Attributes:
        method: The full name of the method.
        context: The servicer's context.
        metadata: The caller's metadata. (gRPC decodes it anew for each that asks the context.)
        request: The request, or the requests as an asynchronous iterator. An interceptor may replace it.
        request_bytes: The encoded size of the request; ``None`` for a stream of requests.
        observers: Called with each response before it is sent.
        write: Sends a response. An interceptor may replace it by a function that calls it.
        unread: Drops the requests of a stream that were not read when it is refused; ``None`` without any.
        response: The response that was sent last.
        seconds: The time limit of the call; ``math.inf`` without one.
        code: The name of the status code that the call ends with, once it has ended.
        reason: The name of its ErrorReason. Empty: none.
    """

    __slots__ = (
        "code",
        "context",
        "metadata",
        "method",
        "observers",
        "reason",
        "request",
        "request_bytes",
        "response",
        "seconds",
        "unread",
        "write",
    )

    def __init__(self, method: str, context: Context, request: Any, request_bytes: int | None) -> None:
        self.method = method
        self.context = context
        self.metadata: Metadata = context.invocation_metadata() or ()
        self.request = request
        self.request_bytes = request_bytes
        self.observers: list[Answered] = []
        self.write: Callable[[Any], Awaitable[None]]
        self.unread: UnreadRequests | None = None
        self.response: Any = None
        self.seconds = 0.0
        self.code, self.reason = "OK", ""

    async def send(self, response: Any) -> None:
        """Sends a response, of which the observers learn first."""
        for observe in self.observers:
            observe(response)
        await self.write(response)


Proceed = Callable[[Call], Awaitable[None]]
"""Serves a call by the interceptors that come after, and the servicer."""


class Interceptor(Protocol):
    """One concern of every call that a server serves."""

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Serves a call; work before and after it encloses ``await proceed(call)``.

        Args:
            call: The call.
            proceed: The rest of the chain, which is awaited once at most.

        Raises:
            ServiceError: The call is refused.
        """


def field_names(message: Any) -> Container[str]:
    """The names of a message's fields, cached: testing a message for an absent field is slow."""
    descriptor: Descriptor | None = getattr(message, "DESCRIPTOR", None)
    return () if descriptor is None else _names(descriptor)


@cache
def _names(descriptor: Descriptor) -> frozenset[str]:
    return frozenset(descriptor.fields_by_name)


_UNKNOWN = "/unknown"
"""The logged name of a method that does not exist."""


class InterceptorChain(grpc.aio.ServerInterceptor):
    """Serves every call through the interceptors.

    Args:
        guard: Authenticates callers before their requests are read.
        interceptors: The interceptors, the outermost first.
        max_message_bytes: The largest request, in bytes.
        further: Interceptors of gRPC that run inside them, the outermost first.
        unlimited: The methods whose calls may last as long as the server. ``answered`` waits for no call of
            theirs.
        gates: The gates of the contracts that have one, by their full names.
    """

    def __init__(
        self,
        guard: Guard,
        interceptors: Sequence[Interceptor],
        max_message_bytes: int,
        further: Sequence[grpc.aio.ServerInterceptor] = (),
        unlimited: Collection[str] = frozenset(),
        gates: Mapping[str, Gate] = MappingProxyType({}),
    ) -> None:
        self._gates = gates
        self._guard = guard
        self._unlimited = unlimited
        self._calls = set[asyncio.Task[Any]]()
        self._max_message_bytes = max_message_bytes
        self._further = tuple(further)
        self._interceptors = tuple(interceptors)
        self._handlers: dict[str, tuple[Handler, Handler]] = {}
        self._unread = UnreadRequests(MAX_CALLS)
        self._unread_unauthenticated = UnreadRequests(MAX_UNAUTHENTICATED_CALLS)

    async def answered(self, timeout: float) -> bool:
        """Waits for the answers to the calls that are in progress now.

        Args:
            timeout: The most seconds to wait.

        Returns:
            Whether there was such a call.
        """
        calls = set(self._calls)
        if calls:
            await asyncio.wait(calls, timeout=timeout)
        return bool(calls)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the handler; the wrapped one is kept, since the next call of the method has the same."""
        details = handler_call_details
        method = str(details.method)
        if method.startswith(INFRASTRUCTURE) and self._guard.is_open(method):
            return await continuation(details)
        # The task ends with the answer that it sends.
        if method not in self._unlimited and (task := asyncio.current_task()) is not None:
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        if not self._guard.authenticate(method, details.invocation_metadata or ()):
            # The log has no words of a caller without an identity.
            named = method if self._guard.knows(method) else _UNKNOWN
            return self._wrap(_unread_call(), named, await self._unread_stream(continuation, details))
        gate = self._gates.get(method[1:].partition("/")[0])
        if gate is not None and (tenant := self._guard.tenant_of_token()) is not None:
            await gate.start(method, tenant)
        for interceptor in reversed(self._further):
            continuation = partial(interceptor.intercept_service, continuation)
        handler = await continuation(details)
        if handler is None:
            return self._wrap(_unknown_method(), method)
        known = self._handlers.get(method)
        if known is None or known[0] is not handler:
            unread = self._unread if handler.request_streaming else None
            known = self._handlers[method] = handler, self._wrap(handler, method, unread)
        return known[1]

    async def _unread_stream(
        self,
        find: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        details: grpc.HandlerCallDetails,
    ) -> UnreadRequests | None:
        """The requests of a caller without an identity; None if there is one at most, which is not read."""
        handler = await find(details)
        return self._unread_unauthenticated if handler is not None and handler.request_streaming else None

    def _wrap(self, handler: Handler, method: str, unread: UnreadRequests | None = None) -> Handler:
        requests, responses = handler.request_streaming, handler.response_streaming
        arity = f"{'stream' if requests else 'unary'}_{'stream' if responses else 'unary'}"
        chain: Proceed = _servicer(getattr(handler, arity), stream=responses)
        for interceptor in reversed(self._interceptors):
            chain = partial(interceptor.intercept, proceed=chain)

        async def serve(request: Any, context: Context) -> Any:
            call = Call(method, context, *((request, None) if requests else request))
            del request  # gRPC keeps the frames of a call that is refused until a search for garbage
            call.unread = unread
            if responses:
                call.write = context.write
            else:
                call.write = partial(_keep, call)
            try:
                await chain(call)
                return call.response
            finally:
                # A call refers to itself by its functions: it would be freed by a search for garbage alone,
                # which is rare, and hold its messages until then.
                call.write, call.request, call.response = _write_nothing, None, None

        wrapped: Handler = getattr(grpc, f"{arity}_rpc_method_handler")(
            serve,
            (_readable if requests else _sized)(handler.request_deserializer, self._max_message_bytes),
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


async def _write_nothing(response: Any) -> None:
    del response


def _sized(parse: Callable[[bytes], Any] | None, max_bytes: int) -> Callable[[bytes], tuple[Any, int]]:
    """Reads a message together with its size: a message has to be encoded anew to tell its size."""
    read = _readable(parse, max_bytes)
    return lambda data: (read(data), len(data))


def _readable(parse: Callable[[bytes], Any] | None, max_bytes: int) -> Callable[[bytes], Any]:
    """Reads a message that is not too large.

    gRPC would end the call of a damaged one with UNKNOWN and the name of an exception, and of one that is too
    large without details.
    """
    if parse is None:
        return lambda data: data
    descriptor = getattr(getattr(parse, "__self__", None), "DESCRIPTOR", None)

    def read(data: bytes) -> Any:
        if is_dropped():
            return data
        if len(data) > max_bytes:
            return DamagedMessage(size=len(data))
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
