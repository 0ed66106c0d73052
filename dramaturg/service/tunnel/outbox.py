"""Gathers what is to be sent on a stream while the stream takes the message before."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")

MESSAGE_BYTES = 256 << 10
"""About how many bytes are sent in one message. A single item may be longer."""
WAITING_BYTES = 16 << 20
"""How many bytes may wait until [Outbox.room] waits too."""

_ITEM_BYTES = 512
"""What an item takes besides its contents."""


class Outbox(Generic[Item]):
    """Sends items in their order, as many in a message as are there.

    What is put in while the event loop goes round once is one message.

    Args:
        send: Sends some items; while it does, further ones are gathered.
    """

    def __init__(self, send: Callable[[list[Item]], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: deque[tuple[Item, int]] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self._emptier = asyncio.Event()
        self._closed = False

    def put(self, item: Item, size: int) -> None:
        """Takes an item whose contents have so many bytes."""
        size += _ITEM_BYTES
        self._waiting.append((item, size))
        self._bytes += size
        self._filled.set()

    async def room(self) -> None:
        """Waits while too much waits, which is where the other side does not read."""
        while self._bytes > WAITING_BYTES:
            self._emptier.clear()
            await self._emptier.wait()

    def close(self) -> None:
        """Has [run] return when all is sent."""
        self._closed = True
        self._filled.set()

    async def run(self) -> None:
        """Sends until it is closed. What ``send`` raises ends it."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._waiting:
                await self._send(self._gathered())
                self._emptier.set()
            if self._closed:
                return

    def _gathered(self) -> list[Item]:
        items: list[Item] = []
        room = MESSAGE_BYTES
        while self._waiting and (not items or self._waiting[0][1] <= room):
            item, size = self._waiting.popleft()
            self._bytes -= size
            room -= size
            items.append(item)
        return items
