"""The call that the interceptors of a server process, and the rest of the requests of a refused one.

The client of gRPC for Python reports INTERNAL in place of the server's status when its call ends while it
writes a message; other clients read the status. The rest of a stream of requests is therefore read and
dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from contextvars import ContextVar
from functools import cache
from typing import Any, Protocol

import grpc
from google.protobuf.descriptor import Descriptor

from dramaturg.service.rpc import Context, Metadata
from dramaturg.service.wire_counts import Excess

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
        send: Sends a response. An interceptor may replace it by a function that calls it.
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
        "reason",
        "request",
        "request_bytes",
        "response",
        "seconds",
        "send",
        "unread",
    )

    def __init__(self, method: str, context: Context, request: Any, request_bytes: int | None) -> None:
        self.method = method
        self.context = context
        self.metadata: Metadata = context.invocation_metadata() or ()
        self.request = request
        self.request_bytes = request_bytes
        self.send: Callable[[Any], Awaitable[None]]
        self.unread: UnreadRequests | None = None
        self.response: Any = None
        self.seconds = 0.0
        self.code, self.reason = "OK", ""


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
