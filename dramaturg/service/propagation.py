"""Carries the deadline and the request id of the call being served on to the calls made for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from dramaturg.service import context
from dramaturg.service.delegation import DelegatingChannel
from dramaturg.service.metadata import added

_Metadata = Any  # grpc.aio.Metadata, or a sequence of pairs


class PropagatingChannel(DelegatingChannel):
    """Bounds every call and names the request that it is made for.

    A call gets the least of its own timeout, the channel's, and what is left to the call being served.

    Args:
        channel: Makes the calls.
        timeout: The longest that a call may take, in seconds, where the caller states no other.
        reserve: What is kept of the time left, in seconds, to still answer with a proper error.
    """

    def __init__(self, channel: grpc.aio.Channel, timeout: float, *, reserve: float) -> None:
        self._channel = channel
        self._timeout = timeout
        self._reserve = reserve

    def behind(self) -> grpc.aio.Channel:
        """The channel that makes the calls."""
        return self._channel

    def delegate(self, make: Callable[[grpc.aio.Channel], Any]) -> Callable[..., Any]:
        """What makes the calls of one method."""
        make_call = make(self._channel)

        def call(
            *given: Any, timeout: float | None = None, metadata: _Metadata = None, **options: Any
        ) -> Any:
            seconds = self._timeout if timeout is None else timeout
            request = context.current()
            if request is not None:
                left = request.remaining()
                if left is not None:
                    seconds = min(seconds, max(0.0, left - self._reserve))
                if request.request_id:
                    metadata = added(metadata, (context.REQUEST_ID_METADATA, request.request_id))
            return make_call(*given, timeout=seconds, metadata=metadata, **options)

        return call
