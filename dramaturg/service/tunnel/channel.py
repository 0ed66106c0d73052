"""A channel whose unary calls share tunnels where there are many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

import grpc

from dramaturg.service.delegation import DelegatingChannel
from dramaturg.service.tunnel.call import CarriedCall
from dramaturg.service.tunnel.metadata import is_plain
from dramaturg.service.tunnel.tunnels import Tunnels

Result = TypeVar("Result")

LARGEST_BYTES = 64 << 10
"""A larger request is a call of its own: nothing is gained, and others would wait for it."""

SMALLEST_LIMIT_BYTES = 1 << 20
"""Tunnels are for channels and servers that take messages at least so long."""

_WINDOW_SECONDS = 1.0
_LONGEST_METHOD = 300
_LONGEST_SECONDS = 1e6
_OF_THEIR_OWN = ("/grpc.", "/dramaturg.api.identity.")


class TunnellingChannel(DelegatingChannel):
    """Has unary calls carried by tunnels where so many begin that it pays; others are gRPC's own.

    Args:
        channel: Makes the calls, and opens the tunnels.
        calls_per_second: From how many calls a second on they share tunnels.
        longest: The most bytes of a response.
    """

    def __init__(self, channel: grpc.aio.Channel, calls_per_second: int, longest: int) -> None:
        self._channel = channel
        self._calls_per_second = calls_per_second
        self._longest = longest
        self._tunnels = Tunnels(channel)
        self._calls: set[CarriedCall] = set()
        self._window = 0.0
        self._begun = self._begun_before = 0

    def behind(self) -> grpc.aio.Channel:
        """The channel that makes the calls."""
        return self._channel

    def delegate(self, make: Callable[[grpc.aio.Channel], Result]) -> Result:
        """What makes the calls of one method."""
        return make(self._channel)

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """What calls a method of this arity."""
        alone = self._channel.unary_unary(method, request_serializer, response_deserializer, **kwargs)
        if (
            request_serializer is None
            or response_deserializer is None
            or method.startswith(_OF_THEIR_OWN)
            or len(method) > _LONGEST_METHOD
        ):
            return alone
        serialize, parse = request_serializer, response_deserializer

        def call(request: Any, *, timeout: float | None = None, metadata: Any = None, **options: Any) -> Any:
            pairs = metadata or ()
            shares = self._many() and self._tunnels.welcome and not options
            data = _written(serialize, request) if shares and _is_usual(timeout) and is_plain(pairs) else None
            if data is None:
                return alone(request, timeout=timeout, metadata=metadata, **options)

            def again(left: float | None) -> Any:
                return alone(request, timeout=left, metadata=metadata)

            tunnel = self._tunnels.next(pairs)
            carried = CarriedCall(again, parse, timeout, self._longest)
            tunnel.carry(carried, method, data, timeout, pairs)
            self._calls.add(carried)
            carried.add_done_callback(self._calls.discard)
            return carried

        return call

    async def close(self, grace: float | None = None) -> None:
        """Closes the channel behind, and with it the tunnels.

        Args:
            grace: Seconds for calls under way. None: they are cancelled at once.
        """
        begun = time.monotonic()
        self._tunnels.retire()
        if grace and self._calls:
            await asyncio.wait([call.result for call in self._calls], timeout=grace)
        for call in tuple(self._calls):
            call.cancel()
        await self._channel.close(max(0.0, grace - (time.monotonic() - begun)) if grace else grace)
        await self._tunnels.ended()

    def _many(self) -> bool:
        """Counts a call; returns whether there are so many that they should share tunnels."""
        now = asyncio.get_running_loop().time()
        if now >= self._window + _WINDOW_SECONDS:
            self._begun_before = self._begun if now < self._window + 2 * _WINDOW_SECONDS else 0
            self._window, self._begun = now, 0
        self._begun += 1
        return max(self._begun, self._begun_before) >= self._calls_per_second


def _written(serialize: Callable[[Any], bytes], request: Any) -> bytes | None:
    """A request, serialized. None: it is too long; or it cannot be, and then gRPC is to say so."""
    try:
        data = serialize(request)
    except Exception:
        return None
    return data if len(data) <= LARGEST_BYTES else None


def _is_usual(timeout: float | None) -> bool:
    """Whether it is a time that one waits for, and no infinity, for example."""
    return timeout is None or 0 < timeout < _LONGEST_SECONDS
