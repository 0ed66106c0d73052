"""A channel on which the methods of contracts are bound once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from dramaturg.service.delegation import DelegatingChannel


class MethodCachingChannel(DelegatingChannel):
    """Keeps what calls each method of a judge.

    A stub is made wherever a judge is asked, and binds all methods of its service; without this that costs
    as much as to make the request.

    Args:
        channel: Makes the calls.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._bound: dict[str, Any] = {}

    def behind(self) -> grpc.aio.Channel:
        """The channel that makes the calls."""
        return self._channel

    def delegate(self, make: Callable[[grpc.aio.Channel], Any]) -> Callable[..., Any]:
        """What makes the calls of one method."""
        return make(self._channel)  # type: ignore[no-any-return] # gRPC's multicallables have no common type

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What calls a method of this arity: what was bound first."""
        bound = self._bound.get(method)
        if bound is None:
            bound = self._bound[method] = super().unary_unary(method, *args, **kwargs)
        return bound
