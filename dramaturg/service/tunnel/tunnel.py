"""One tunnel, from the side that opens it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import grpc
from google.protobuf.duration_pb2 import Duration

from dramaturg.api.tunnel.v1.tunnel_service_pb2 import Call, OpenTunnelRequest, OpenTunnelResponse
from dramaturg.api.tunnel.v1.tunnel_service_pb2_grpc import TunnelServiceStub
from dramaturg.service.metadata import Pair
from dramaturg.service.tunnel.call import CarriedCall
from dramaturg.service.tunnel.metadata import pack
from dramaturg.service.tunnel.outbox import Outbox

logger = logging.getLogger(__name__)

# How a stream ends whose server is lost: INTERNAL, by gRPC for Python itself, where a write was under way.
_LOST = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED})


class _Said(NamedTuple):
    """What is to be said to the server: that a call begins, or that nobody waits for one any more."""

    begins: Call | None
    given_up: int


class Watcher(Protocol):
    """Is told what becomes of a tunnel."""

    def connected(self, tunnel: Tunnel) -> None:
        """Learns that the server at its end is known."""

    def refused(self, code: grpc.StatusCode) -> None:
        """Learns that the server did not let it in, or no further."""


class Tunnel:
    """Carries calls to one server, the one that gRPC's balancing chose for the stream.

    Calls that are under way when the stream breaks are made again, each by itself: whatever became of the
    tunnel is not theirs.

    Args:
        channel: Opens the stream.
        metadata: What says who opens it.
        watcher: Is told what becomes of it.
        calls: How many calls it takes.
    """

    def __init__(
        self, channel: grpc.aio.Channel, metadata: Iterable[Pair], watcher: Watcher, calls: int
    ) -> None:
        self._watcher = watcher
        self._most = calls
        self._calls: dict[int, CarriedCall] = {}
        self._begun = 0
        self._retired = False
        self.server = ""
        """The name of the server at its end, once that is known."""
        self._stream: Any = TunnelServiceStub(channel).OpenTunnel(metadata=tuple(metadata))
        self._outbox = Outbox[_Said](self._send)
        loop = asyncio.get_running_loop()
        self._sending = loop.create_task(self._sent())
        self._receiving = loop.create_task(self._received())

    @property
    def retired(self) -> bool:
        """Whether it takes no more calls."""
        return self._retired

    @property
    def full(self) -> bool:
        """Whether the next call is for another."""
        return self._retired or self._begun >= self._most

    def carry(
        self,
        call: CarriedCall,
        method: str,
        request: bytes,
        seconds: float | None,
        metadata: Iterable[Pair],
    ) -> None:
        """Takes a call.

        Args:
            call: The call.
            method: Its method.
            request: Its request, serialized.
            seconds: How long the answer is waited for.
            metadata: What comes with it.
        """
        self._begun += 1
        number = self._begun
        self._calls[number] = call
        call.when_given_up(lambda: self._give_up(number))
        begins = Call(number=number, method=method, metadata=pack(metadata), request=request)
        if seconds is not None:
            begins.timeout.CopyFrom(_duration(seconds))
        self._outbox.put(_Said(begins, 0), len(request))

    def retire(self) -> None:
        """Takes no more calls, and ends when the last one is answered."""
        self._retired = True
        self._rest()

    async def ended(self) -> None:
        """Waits for its end."""
        await asyncio.wait([self._sending, self._receiving])

    def _give_up(self, number: int) -> None:
        if self._calls.pop(number, None) is not None:
            self._outbox.put(_Said(None, number), 0)
            self._rest()

    def _rest(self) -> None:
        if self._retired and not self._calls:
            self._outbox.close()

    async def _send(self, said: list[_Said]) -> None:
        begin = [one.begins for one in said if one.begins is not None]
        given_up = [one.given_up for one in said if one.begins is None]
        await self._stream.write(OpenTunnelRequest(calls=begin, cancelled_calls=given_up))

    async def _sent(self) -> None:
        try:
            await self._outbox.run()
            await self._stream.done_writing()
        except (grpc.aio.BaseError, grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            # Whoever receives learns why.
            return

    async def _received(self) -> None:
        code, details = grpc.StatusCode.INTERNAL, "the tunnel ended before its calls did"
        closed = False
        try:
            async for response in self._stream:
                self._take(response)
        except grpc.aio.AioRpcError as error:
            code, details = error.code(), error.details() or ""
        except asyncio.CancelledError:
            # What gRPC does to the calls of a channel that is closed; or the event loop ends.
            closed = True
        except Exception:
            logger.exception("an answer in a tunnel cannot be read")
            self._stream.cancel()
        self._retired = True
        self._sending.cancel()
        calls, self._calls = [*self._calls.values()], {}
        if not closed and code not in _LOST:
            logger.info("no tunnel: %s: %s", code.name, details)
            self._watcher.refused(code)
        for call in calls:
            if closed:
                call.cancel()
            elif code in _LOST:
                call.make_again()
            else:
                call.make_alone()

    def _take(self, response: OpenTunnelResponse) -> None:
        if response.server and not self.server:
            self.server = response.server
            self._watcher.connected(self)
        for answer in response.answers:
            call = self._calls.get(answer.call)
            if call is not None and call.answered(answer):
                del self._calls[answer.call]
        self._rest()


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(max(0.0, seconds) * 1e9))
    return duration
