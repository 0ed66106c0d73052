"""Gives every call a deadline, and refuses those that cannot be kept.

Deadlines do not travel by themselves: the handler of a call with two seconds left may call another service
without any. Here the deadline goes into the request's context, where the channel finds it for the next hop.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
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

    def seconds(self, context: Context) -> float:
        """How long a call may take."""
        inbound: float | None = context.time_remaining()  # the stub's type leaves out None
        return self._default if inbound is None else min(inbound, self._maximum)

    def limit(self, seconds: float) -> Limit:
        """The limit of a call that may take so long.

        Raises:
            ServiceError: DEADLINE_EXCEEDED, ERROR_REASON_DEADLINE_TOO_SHORT.
        """
        if seconds < self._floor:
            raise _too_short(seconds, self._floor)
        return Limit(seconds)


class Limit:
    """Ends the work within a ``with`` block after some seconds, by ``ServiceError`` (DEADLINE_EXCEEDED).

    What ``asyncio.timeout`` does, with a [rest] that touches no timer: a stream rests at every message.
    """

    __slots__ = ("_cancelled", "_over", "_resting", "_seconds", "_struck", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._over = self._struck = self._resting = False

    def __enter__(self) -> Self:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelled = task.cancelling()
        self._timer = loop.call_later(self._seconds, self._strike)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # Who else cancelled the task in the meantime gets what is its due.
        alone = self._struck and self._task.uncancel() <= self._cancelled
        if alone and isinstance(error, asyncio.CancelledError):
            raise _exceeded(self._seconds) from None

    def rest(self) -> None:
        """Does not strike until [resume].

        A task that is cancelled while gRPC sends for it ends without a status, and a caller without a
        deadline of its own would wait for one forever.
        """
        self._resting = True

    def resume(self) -> None:
        """Strikes again after a [rest].

        Raises:
            ServiceError: The time is over already.
        """
        self._resting = False
        if self._over:
            raise _exceeded(self._seconds)

    def _strike(self) -> None:
        self._over = True
        if not self._resting:
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
