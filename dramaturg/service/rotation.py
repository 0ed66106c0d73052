"""A channel that is opened anew when its certificates change.

gRPC reads a client's certificate once. Without this, a client whose certificate is renewed every day connects
with the expired one after its first reconnect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from dramaturg.service.delegation import DelegatingChannel
from dramaturg.service.files import versions
from dramaturg.service.settings import SettingsError

logger = logging.getLogger(__name__)


class RotatingChannel(DelegatingChannel):
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

    def behind(self) -> grpc.aio.Channel:
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

    def delegate(self, make: Callable[[grpc.aio.Channel], Any]) -> Callable[..., Any]:
        """What calls on the newest channel."""
        return _NewestCallable(self, make)

    async def close(self, grace: float | None = None) -> None:
        """Closes the newest channel and those that it replaced."""
        for waiting in self._retiring.values():
            waiting.cancel()
        await asyncio.gather(*(channel.close(grace) for channel in (self._channel, *self._retiring)))


class _NewestCallable:
    def __init__(self, owner: RotatingChannel, bind: Callable[[grpc.aio.Channel], Any]) -> None:
        self._owner = owner
        self._bind = bind
        self._bound: tuple[grpc.aio.Channel, Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        channel = self._owner.behind()
        if self._bound is None or self._bound[0] is not channel:
            self._bound = channel, self._bind(channel)
        return self._bound[1](*args, **kwargs)
