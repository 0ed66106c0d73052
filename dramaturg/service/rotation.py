"""A channel that is opened anew when its certificates change.

gRPC reads a client's certificate once. Without this, a client whose certificate is renewed every day connects
with the expired one after its first reconnect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from dramaturg.service.settings import SettingsError
from dramaturg.service.tls import versions

logger = logging.getLogger(__name__)


class RotatingChannel(grpc.aio.Channel):
    """Stands for the newest of several channels to one target.

    The files are looked at before each call (a ``stat`` each). Calls under way end on the channel that they
    began on.

    Args:
        connect: Opens a channel with the files as they are now.
        files: The certificates and keys.
        grace: Seconds for the calls on a channel that was replaced.
    """

    def __init__(self, connect: Callable[[], grpc.aio.Channel], files: list[Path], *, grace: float) -> None:
        self._connect = connect
        self._files = files
        self._grace = grace
        self._versions = versions(files)
        self._channel = connect()
        self._retiring: dict[grpc.aio.Channel, asyncio.Task[None]] = {}

    def newest(self) -> grpc.aio.Channel:
        """The channel for the next call."""
        try:
            found = versions(self._files)
            if found == self._versions:
                return self._channel
            channel = self._connect()
        except SettingsError:
            # A renewal may be seen half done.
            logger.exception("the client's certificate could not be read again")
            return self._channel
        old = self._channel
        self._retiring[old] = asyncio.get_running_loop().create_task(old.close(self._grace))
        self._retiring[old].add_done_callback(lambda _: self._retiring.pop(old, None))
        self._versions, self._channel = found, channel
        return channel

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        """A callable that calls on the newest channel."""
        return _NewestCallable(self, lambda channel: channel.unary_unary(*args, **kwargs))

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        """A callable that calls on the newest channel."""
        return _NewestCallable(self, lambda channel: channel.unary_stream(*args, **kwargs))

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        """A callable that calls on the newest channel."""
        return _NewestCallable(self, lambda channel: channel.stream_unary(*args, **kwargs))

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        """A callable that calls on the newest channel."""
        return _NewestCallable(self, lambda channel: channel.stream_stream(*args, **kwargs))

    async def close(self, grace: float | None = None) -> None:
        """Closes the newest channel and those that it replaced."""
        for waiting in self._retiring.values():
            waiting.cancel()
        await asyncio.gather(*(channel.close(grace) for channel in (self._channel, *self._retiring)))

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """The newest channel's state."""
        return self.newest().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Waits for a change of the newest channel's state."""
        await self.newest().wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Waits until the newest channel is connected."""
        await self.newest().channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _NewestCallable:
    def __init__(self, owner: RotatingChannel, bind: Callable[[grpc.aio.Channel], Any]) -> None:
        self._owner = owner
        self._bind = bind
        self._bound: tuple[grpc.aio.Channel, Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        channel = self._owner.newest()
        if self._bound is None or self._bound[0] is not channel:
            self._bound = channel, self._bind(channel)
        return self._bound[1](*args, **kwargs)
