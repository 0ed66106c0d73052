"""Reads and drops the rest of a stream of requests whose call is refused.

The client of gRPC for Python reports INTERNAL in place of the server's status when its call ends while it
writes a message. Other clients read the status.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import grpc

from dramaturg.service.rpc import Context

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
