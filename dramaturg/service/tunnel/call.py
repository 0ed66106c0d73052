"""A unary call that a tunnel carries, as its caller sees it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator, Iterable
from typing import Any

import grpc

from dramaturg.api.tunnel.v1.tunnel_service_pb2 import Answer
from dramaturg.service.metadata import Pair
from dramaturg.service.status import PUSHBACK_METADATA
from dramaturg.service.tunnel.context import status_code
from dramaturg.service.tunnel.metadata import unpack

_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_PUSHBACK = 9
"""In digits, of milliseconds: longer than any call lasts."""


class CarriedCall(grpc.aio.UnaryUnaryCall[Any, Any]):
    """Stands for the call that gRPC would have made.

    Args:
        alone: Makes the call by itself, where the tunnel cannot bring it to its end. It is told how many
            seconds are left.
        parse: Reads the response.
        seconds: How long the answer is waited for. ``None``: as long as it takes.
        longest: The most bytes of a response.
    """

    def __init__(
        self,
        alone: Callable[[float | None], grpc.aio.UnaryUnaryCall[Any, Any]],
        parse: Callable[[bytes], Any],
        seconds: float | None,
        longest: int,
    ) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._alone = alone
        self._parse = parse
        self._longest = longest
        self._parts: list[bytes] = []
        self._length = 0
        self._trailing: Iterable[Pair] = ()
        self._again: asyncio.Task[None] | None = None
        self._result: asyncio.Future[Any] = loop.create_future()
        self._deadline = None if seconds is None else loop.time() + seconds
        self._timer = None if self._deadline is None else loop.call_at(self._deadline, self._too_late)
        self._given_up: Callable[[], None] = _nobody
        self._result.add_done_callback(self._ended)

    def when_given_up(self, tell: Callable[[], None]) -> None:
        """Has somebody told, where the caller does not wait for the answer any more."""
        self._given_up = tell

    @property
    def result(self) -> asyncio.Future[Any]:
        """The response, or what was raised in its place."""
        return self._result

    def answered(self, answer: Answer) -> bool:
        """Takes an answer, or a part of it; returns whether it was the last."""
        if self._result.done():
            return not answer.more
        if answer.code:
            self._refused(answer)
            return True
        self._length += len(answer.response)
        if self._length > self._longest:
            said = f"the response is larger than the most that is taken ({self._length} vs. {self._longest})"
            self.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, said)
            return not answer.more
        self._parts.append(answer.response)
        if answer.more:
            return False
        if answer.trailing_metadata:
            self._trailing = unpack(answer.trailing_metadata)
        try:
            self._result.set_result(self._parse(b"".join(self._parts)))
        except Exception:
            # As gRPC says it of a call of its own.
            self.fail(grpc.StatusCode.INTERNAL, "Exception deserializing response!")
        return True

    def fail(self, code: grpc.StatusCode, details: str, trailing: Iterable[Pair] = ()) -> None:
        """Ends the call with a status."""
        if not self._result.done():
            metadata = grpc.aio.Metadata(*trailing)
            error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details=details)
            self._result.set_exception(error)

    def make_alone(self) -> None:
        """Has the call made by itself, within the time that is left to it: it was not served."""
        self._make_alone(0)

    def make_again(self) -> None:
        """Has the call made by itself in a moment: its server was lost, and gRPC retries that."""
        # As long as gRPC waits before its first retry, with the same jitter (gRFC A6).
        self._make_alone(_FIRST_BACKOFF_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load

    def _make_alone(self, wait: float) -> None:
        if not self._result.done():
            self._again = self._loop.create_task(self._made_alone(wait))

    async def _made_alone(self, wait: float) -> None:
        try:
            await asyncio.sleep(wait)
            call = self._alone(self.time_remaining())
            response = await call
            self._trailing = await call.trailing_metadata()
        except asyncio.CancelledError:
            self._result.cancel()
            raise
        except Exception as error:
            if isinstance(error, grpc.aio.AioRpcError):
                self._trailing = error.trailing_metadata()
            if not self._result.done():
                self._result.set_exception(error)
        else:
            if not self._result.done():
                self._result.set_result(response)

    def _refused(self, answer: Answer) -> None:
        code = status_code(answer.code)
        trailing = unpack(answer.trailing_metadata)
        if code is grpc.StatusCode.UNAVAILABLE:
            # What the retry policy of a channel does: another replica, or this one in a moment, will do.
            pushback = dict(trailing).get(PUSHBACK_METADATA)
            if pushback is None:
                self.make_again()
                return
            if pushback.isdecimal() and len(pushback) <= _LONGEST_PUSHBACK:
                self._make_alone(int(pushback) / 1000)
                return
        self._trailing = trailing
        self.fail(code, answer.details, trailing)

    def _too_late(self) -> None:
        self.fail(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        self._given_up()

    def _ended(self, result: asyncio.Future[Any]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._again is not None:
            self._again.cancel()
        if result.cancelled():
            self._given_up()
        else:
            # A failure that nobody asks for is nobody's fault.
            result.exception()

    def __await__(self) -> Generator[Any, None, Any]:
        """The response.

        Raises:
            grpc.aio.AioRpcError: The call failed.
        """
        return self._result.__await__()

    def cancel(self) -> bool:
        """Gives the call up; returns whether it was still under way."""
        return self._result.cancel()

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self._result.cancelled()

    def done(self) -> bool:
        """Whether it has ended."""
        return self._result.done()

    def time_remaining(self) -> float | None:
        """Seconds until its deadline, at least 0; ``None`` without one."""
        return None if self._deadline is None else max(0.0, self._deadline - self._loop.time())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Has somebody told when it has ended."""
        self._result.add_done_callback(lambda _: callback(self))

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """None: a tunnel has none for its calls."""
        return grpc.aio.Metadata()

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """What the server sent after the response."""
        await self._settled()
        return grpc.aio.Metadata(*self._trailing)

    async def code(self) -> grpc.StatusCode:
        """How it ended."""
        error = await self._settled()
        return grpc.StatusCode.OK if error is None else error.code()

    async def details(self) -> str:
        """What was said of how it ended."""
        error = await self._settled()
        return "" if error is None else error.details() or ""

    async def wait_for_connection(self) -> None:
        """Does not wait: the tunnel connects."""

    async def _settled(self) -> grpc.aio.AioRpcError | None:
        try:
            # Who asks how it ended may stop to ask, and does not give it up by that.
            await asyncio.shield(self._result)
        except grpc.aio.AioRpcError as error:
            return error
        except asyncio.CancelledError:
            if not self._result.cancelled():
                raise
            nothing = grpc.aio.Metadata()
            said = "Locally cancelled by application!"
            return grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, nothing, nothing, details=said)
        return None


def _nobody() -> None:
    pass
