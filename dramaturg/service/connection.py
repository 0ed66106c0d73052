"""The connection of a client, which is opened anew when its certificates change.

gRPC reads a client's certificate once. Without this, a client whose certificate is renewed every day connects
with the expired one after its first reconnect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from dramaturg.service.files import modification_times
from dramaturg.service.settings import SettingsError

logger = logging.getLogger(__name__)


class Connection:
    """The newest of several channels of gRPC to one target.

    The files are looked at before each call (a ``stat`` each). Calls in progress end on the channel that they
    began on.

    Args:
        connect: Opens a channel with the files as they are now.
        files: The certificates and keys. None: the channel is never replaced.
        grace: Seconds for the calls on a channel that was replaced.
    """

    def __init__(
        self, connect: Callable[[], grpc.aio.Channel], files: Sequence[Path], *, grace: float
    ) -> None:
        self._connect = connect
        self._files = files
        self._grace = grace
        self._times = modification_times(files)
        self._channel = connect()
        self._retiring: dict[grpc.aio.Channel, asyncio.Task[None]] = {}

    def channel(self) -> grpc.aio.Channel:
        """The channel for the next call."""
        if not self._files:
            return self._channel
        try:
            times = modification_times(self._files)
            if times == self._times:
                return self._channel
            channel = self._connect()
        except SettingsError:
            # Some of the files may be renewed, and some not yet.
            logger.exception("the client's certificate could not be read again")
            return self._channel
        old = self._channel
        self._retiring[old] = asyncio.get_running_loop().create_task(old.close(self._grace))
        self._retiring[old].add_done_callback(lambda _: self._retiring.pop(old, None))
        self._times, self._channel = times, channel
        return channel

    async def close(self, grace: float | None) -> None:
        """Closes the newest channel and those that it replaced."""
        for waiting in self._retiring.values():
            waiting.cancel()
        await asyncio.gather(*(channel.close(grace) for channel in (self._channel, *self._retiring)))
