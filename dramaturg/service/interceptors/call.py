"""The call that the interceptors of a server process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from functools import cache
from typing import Any, Protocol

from google.protobuf.descriptor import Descriptor

from dramaturg.service.interceptors.unread_requests import UnreadRequests
from dramaturg.service.rpc import Context, Metadata
from dramaturg.service.wire_counts import Excess


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
