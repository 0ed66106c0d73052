"""Gives every call a request id and a deadline; ends it there, and refuses calls with too little time left.

gRPC does not pass deadlines on: the handler of a call with two seconds left may call another service without
any. The deadline is in the request's context, where the channel finds it for the next hop.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Container
from functools import partial
from types import TracebackType
from typing import Any, Self

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service import context
from dramaturg.service.context import (
    BATCH_METADATA,
    DEADLINE_METADATA,
    PEER_METADATA,
    REQUEST_ID_METADATA,
    RequestContext,
    batch_until_of,
    request_id_of,
)
from dramaturg.service.errors import ServiceError
from dramaturg.service.interceptors.call import Call, Proceed


class RequestContexts:
    """Enters the context of the request.

    Args:
        default_deadline: Seconds for a call that brings no deadline.
        maximum_deadline: The most seconds for any call.
        unlimited: The full names of methods that have no limit but the deadline of the caller.
        batches: Whether callers decide that model calls wait for batches. A server with quotas leaves it to
            its runs: what a caller has bought and does not come back for would count against no quota.
    """

    def __init__(
        self,
        *,
        default_deadline: float,
        maximum_deadline: float,
        unlimited: Container[str] = (),
        batches: bool = True,
    ) -> None:
        self._batches = batches
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
                batch_until_of(value for key, value in call.metadata if key == BATCH_METADATA)
                if self._batches
                else None,
            )
        )
        await proceed(call)


def _peer(call: Call) -> str:
    """The address of the caller. A front, which alone has the server's socket, states that of its caller."""
    peer = call.context.peer()
    if not peer.startswith("unix:"):
        return peer
    return next((str(value) for key, value in call.metadata if key == PEER_METADATA), peer)


class Deadlines:
    """Ends the work on a call at its time limit.

    Time in which a slow reader blocks a stream is included; the stream ends when the reader takes the next
    message.

    Args:
        floor: A call with fewer seconds left is refused before any work.
    """

    def __init__(self, *, floor: float) -> None:
        self._floor = floor

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Bounds the call.

        Raises:
            ServiceError: DEADLINE_EXCEEDED: ERROR_REASON_DEADLINE_TOO_SHORT or
                ERROR_REASON_DEADLINE_EXCEEDED.
        """
        if call.seconds < self._floor:
            raise _too_short(call.seconds, self._floor)
        if call.seconds == math.inf:
            await proceed(call)
            return
        with Limit(call.seconds) as limit:
            call.send = partial(_send, call.send, limit)
            await proceed(call)


async def _send(send: Any, limit: Limit, response: Any) -> None:
    # A task that is cancelled while gRPC sends for it ends without a status, and a caller without a deadline
    # of its own would wait for one forever.
    limit.pause()
    await send(response)
    limit.resume()


class Limit:
    """Ends the work within a ``with`` block after some seconds, by ``ServiceError`` (DEADLINE_EXCEEDED).

    It does what ``asyncio.timeout`` does, with a [pause] that touches no timer: a stream pauses at every
    message.
    """

    __slots__ = ("_cancelled", "_expired", "_paused", "_seconds", "_struck", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._expired = self._struck = self._paused = False

    def __enter__(self) -> Self:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelled = task.cancelling()
        self._timer = loop.call_later(self._seconds, self._expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # A cancellation by others stays one.
        alone = self._struck and self._task.uncancel() <= self._cancelled
        if alone and isinstance(error, asyncio.CancelledError):
            raise _exceeded(self._seconds) from None

    def pause(self) -> None:
        """Does not cancel the task until [resume]."""
        self._paused = True

    def resume(self) -> None:
        """Cancels the task again when the time is over.

        Raises:
            ServiceError: The time limit has passed.
        """
        self._paused = False
        if self._expired:
            raise _exceeded(self._seconds)

    def _expire(self) -> None:
        self._expired = True
        if not self._paused:
            self._struck = True
            self._task.cancel()


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
