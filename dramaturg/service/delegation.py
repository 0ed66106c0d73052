"""A channel that stands in front of another one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc


class DelegatingChannel(grpc.aio.Channel):
    """Has the calls made by a channel behind it: a subclass says by which, and what is done to each call.

    gRPC's own interceptors could do the same, at the price of a task and three objects more for every call.
    """

    @abstractmethod
    def behind(self) -> grpc.aio.Channel:
        """The channel for the next call."""

    @abstractmethod
    def delegate(self, make: Callable[[grpc.aio.Channel], Any]) -> Callable[..., Any]:
        """What makes the calls of one method; ``make`` binds the method to a channel."""

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        """What calls a method of this arity."""
        return self.delegate(lambda channel: channel.unary_unary(*args, **kwargs))

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        """What calls a method of this arity."""
        return self.delegate(lambda channel: channel.unary_stream(*args, **kwargs))

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        """What calls a method of this arity."""
        return self.delegate(lambda channel: channel.stream_unary(*args, **kwargs))

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        """What calls a method of this arity."""
        return self.delegate(lambda channel: channel.stream_stream(*args, **kwargs))

    async def close(self, grace: float | None = None) -> None:
        """Closes the channel behind."""
        await self.behind().close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """The state of the channel behind."""
        return self.behind().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Waits for a change of its state."""
        await self.behind().wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Waits until it is connected."""
        await self.behind().channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
