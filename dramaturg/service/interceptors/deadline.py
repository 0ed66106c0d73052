"""Gives every call a deadline, and refuses those that cannot be kept.

Deadlines do not travel by themselves: the handler of a call with two seconds left may call another service
without any. Here the deadline goes into the request's context, where the channel finds it for the next hop.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.context import RequestContext, current, enter
from dramaturg.service.errors import ServiceError

if TYPE_CHECKING:
    from dramaturg.service.interceptors.calls import Context


class Deadlines:
    """Ends the work when the caller's deadline, or the server's own, is over.

    Time for which a slow reader holds up a stream counts too; the stream ends when the reader lets it go on.

    Args:
        default: Seconds for a call that brings no deadline.
        maximum: The most seconds for any call.
        floor: A call with fewer seconds left is refused before any work.
    """

    def __init__(self, *, default: float, maximum: float, floor: float) -> None:
        self._default = default
        self._maximum = maximum
        self._floor = floor

    def limit(self, context: Context, method: str) -> Limit:
        """The limit of one call, which goes into the request's context too.

        Raises:
            ServiceError: DEADLINE_EXCEEDED, ERROR_REASON_DEADLINE_TOO_SHORT.
        """
        inbound: float | None = context.time_remaining()  # the stub's type leaves out None
        seconds = self._default if inbound is None else min(inbound, self._maximum)
        if seconds < self._floor:
            raise _too_short(seconds, self._floor)
        request = current() or RequestContext(request_id="", method=method)
        enter(RequestContext(request.request_id, request.method, request.peer, time.monotonic() + seconds))
        return Limit(seconds)


class Limit:
    """Ends the work inside of it after some seconds, by ``ServiceError`` (DEADLINE_EXCEEDED)."""

    __slots__ = ("_seconds", "_timeout", "_when")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(seconds)
        self._when: float | None = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise _exceeded(self._seconds) from None

    def rest(self) -> None:
        """Does not strike until [resume].

        A task that is cancelled while gRPC sends for it ends without a status, and a caller without a
        deadline of its own would wait for one forever.
        """
        self._when = self._timeout.when()
        self._timeout.reschedule(None)

    async def resume(self) -> None:
        """Runs again after a [rest], and strikes here where it is over."""
        self._timeout.reschedule(self._when)
        if self._when is not None and self._when <= asyncio.get_running_loop().time():
            await asyncio.sleep(0)


def _too_short(remaining: float, floor: float) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.DEADLINE_EXCEEDED,
        error_reason_pb2.ERROR_REASON_DEADLINE_TOO_SHORT,
        f"{remaining:.3f} s are left before the deadline; at least {floor:g} s are needed",
        metadata={"remaining_seconds": f"{remaining:.3f}", "floor_seconds": f"{floor:g}"},
    )


def _exceeded(seconds: float) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.DEADLINE_EXCEEDED,
        error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
        f"the work did not end within {seconds:.3f} s",
        metadata={"seconds": f"{seconds:.3f}"},
    )
