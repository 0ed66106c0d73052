"""Gives every call a request id and a deadline, for all code that works on it."""

from __future__ import annotations

import math
import time
from collections.abc import Container

from dramaturg.service import context
from dramaturg.service.context import (
    DEADLINE_METADATA,
    PEER_METADATA,
    REQUEST_ID_METADATA,
    RequestContext,
    request_id_of,
)
from dramaturg.service.interceptors.call import Call, Proceed


class RequestContexts:
    """Enters the context of the request.

    Args:
        default_deadline: Seconds for a call that brings no deadline.
        maximum_deadline: The most seconds for any call.
        unlimited: The full names of methods that have no limit but the deadline of the caller.
    """

    def __init__(
        self, *, default_deadline: float, maximum_deadline: float, unlimited: Container[str] = ()
    ) -> None:
        self._default = default_deadline
        self._maximum = maximum_deadline
        self._unlimited = unlimited

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Enters the context."""
        inbound: float | None = call.context.time_remaining()  # the stub's type leaves out None
        if call.method in self._unlimited:
            call.seconds = math.inf if inbound is None else inbound
        elif inbound is None or inbound > self._maximum:
            call.seconds = self._default if inbound is None else self._maximum
            await call.context.send_initial_metadata(((DEADLINE_METADATA, f"{call.seconds:g}"),))
        else:
            call.seconds = inbound
        given = (value for key, value in call.metadata if key == REQUEST_ID_METADATA)
        context.enter(
            RequestContext(
                request_id_of(given),
                call.method,
                _peer(call),
                None if call.seconds == math.inf else time.monotonic() + call.seconds,
            )
        )
        await proceed(call)


def _peer(call: Call) -> str:
    """The address of the caller. A front, which alone has the server's socket, states that of its caller."""
    peer = call.context.peer()
    if not peer.startswith("unix:"):
        return peer
    return next((str(value) for key, value in call.metadata if key == PEER_METADATA), peer)
