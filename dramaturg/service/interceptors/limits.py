"""Bounds of a call: its request id and deadline, the limits of its requests, the size of its responses.

Gives every call a request id and a deadline; ends it there, and refuses calls with too little time left. gRPC
does not pass deadlines on: the handler of a call with two seconds left may call another service without any.
The deadline is in the request's context, where the channel finds it for the next hop.

Bounds the responses of a tenant that are built or not yet received. gRPC holds a response until its caller
has read it: without a bound, a few hundred concurrent reads of pages, or callers that read nothing, take
gigabytes.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.message import Message

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service import context
from dramaturg.service.auth.caller import current
from dramaturg.service.context import (
    BATCH_METADATA,
    DEADLINE_METADATA,
    PEER_METADATA,
    REQUEST_ID_METADATA,
    RequestContext,
    batch_until_of,
    request_id_of,
)
from dramaturg.service.errors import ServiceError, invalid, too_many_bytes
from dramaturg.service.interceptors.chain import Call, DamagedMessage, Proceed
from dramaturg.service.threads import TenantTurns
from dramaturg.service.validation import validate


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
            call.write = partial(_write, call.write, limit)
            await proceed(call)


async def _write(write: Any, limit: Limit, response: Any) -> None:
    # A task that is cancelled while gRPC sends for it ends without a status, and a caller without a deadline
    # of its own would wait for one forever.
    limit.pause()
    await write(response)
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


LARGE_BYTES = 256 * 1024
"""A larger message is checked in a thread: with hundreds of thousands of elements that takes a second, in
which the event loop would answer no other call, nor a probe."""

_THREADS = 2
_pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="validation")


class Validation:
    """Checks each request.

    Args:
        max_message_bytes: The largest request, in bytes.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Checks the request, or each one of a stream.

        Raises:
            ServiceError: INVALID_ARGUMENT with every violation, or because the bytes are no message;
                RESOURCE_EXHAUSTED, ERROR_REASON_TOO_LARGE.
        """
        size = call.request_bytes
        self._require_readable(call.request)
        if size is None:
            call.request = self._each_checked(call.request)
        elif size <= LARGE_BYTES:
            if isinstance(call.request, Message):
                validate(call.request, size)
        else:
            await _check(call.request, size)
        await proceed(call)

    async def _each_checked(self, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for message in messages:
            self._require_readable(message)
            if isinstance(message, Message):
                await _check(message, message.ByteSize())
            yield message

    def _require_readable(self, message: object) -> None:
        if not isinstance(message, DamagedMessage):
            return
        if message.excess is not None:
            field, limit = message.excess
            raise invalid(field, f"has more than {limit} elements; at most {limit} are allowed")
        if message.size:
            raise too_many_bytes(self._max_message_bytes, message.size)
        raise ServiceError(
            grpc.StatusCode.INVALID_ARGUMENT,
            error_reason_pb2.ERROR_REASON_FIELD_INVALID,
            "the bytes of the request are no message of this method",
        )


async def _check(message: object, size: int) -> None:
    if not isinstance(message, Message):
        return
    if size > LARGE_BYTES:
        await asyncio.get_running_loop().run_in_executor(_pool, validate, message, size)
    else:
        validate(message, size)


MAX_RESPONSES = 32
"""The most large responses of a method at once."""
MAX_RESPONSES_OF_TENANT = 2
"""The same of one tenant. Further calls wait until their deadline."""


class ResponseTurns:
    """The slots of large responses. Those of a method that a caller does not read delay no other method.

    Args:
        methods: The full names of the methods with large responses.
    """

    def __init__(self, methods: Iterable[str]) -> None:
        self._turns = {method: TenantTurns(MAX_RESPONSES, MAX_RESPONSES_OF_TENANT) for method in methods}

    def of(self, method: str) -> TenantTurns | None:
        """The slots of a method. None: its responses are not large."""
        return self._turns.get(method)


class LargeResponses:
    """Holds a slot of the caller's tenant from the start of a call until its response is received.

    Args:
        methods: The full names of the methods with large responses.
    """

    def __init__(self, methods: Iterable[str]) -> None:
        self._turns = ResponseTurns(methods)

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Waits for a slot."""
        turns = self._turns.of(call.method)
        if turns is not None:
            turn = await turns.take(current().tenant)
            end: Any = lambda _: turn.end()  # noqa: E731 - its type in the stubs is a class
            # Called when the call has ended for its caller, too.
            call.context.add_done_callback(end)
        await proceed(call)
