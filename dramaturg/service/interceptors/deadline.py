"""Gives every call a deadline, and refuses those that cannot be kept.

Deadlines do not travel by themselves: the handler of a call with two seconds left may call another service
without any. Here the deadline goes into the request's context, where the channel finds it for the next hop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.context import RequestContext, current, enter
from dramaturg.service.errors import ServiceError
from dramaturg.service.interceptors.around import AroundInterceptor, Context


class DeadlineInterceptor(AroundInterceptor):
    """Ends the work when the caller's deadline, or the server's own, is over.

    Time for which a slow reader holds up a stream counts too; the stream ends when the reader lets it go on.

    Args:
        default: Seconds for a call that brings no deadline.
        maximum: The most seconds for any call.
        floor: A call with fewer seconds left is refused before any work.
    """

    def __init__(self, *, default: float, maximum: float, floor: float) -> None:
        super().__init__()
        self._default = default
        self._maximum = maximum
        self._floor = floor

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[asyncio.Timeout]:
        """Raises DEADLINE_EXCEEDED, before the work (too short) or during it."""
        inbound: float | None = context.time_remaining()  # the stub's type leaves out None
        seconds = self._default if inbound is None else min(inbound, self._maximum)
        if seconds < self._floor:
            raise _too_short(seconds, self._floor)
        request = current() or RequestContext(request_id="", method=method)
        enter(dataclasses.replace(request, deadline=time.monotonic() + seconds))
        try:
            async with asyncio.timeout(seconds) as limit:
                yield limit
        except TimeoutError:
            if not limit.expired():  # one of the handler's own
                raise
            raise _exceeded(seconds) from None


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
