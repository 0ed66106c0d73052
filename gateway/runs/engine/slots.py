"""Shares the samples that this process evaluates at once between runs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(eq=False)
class Share:
    """One run's part of the slots. Its limits may be changed at any time."""

    limit: int
    """The most slots it holds at once."""
    priority: int = 0
    """Runs of higher priority come first."""
    used: int = 0
    """The slots it holds."""
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    """Who waits for one, the longest first."""

    @property
    def wants_one(self) -> bool:
        """Whether somebody waits for a slot that the limit allows."""
        while self.waiting and self.waiting[0].done():
            self.waiting.popleft()
        return bool(self.waiting) and self.used < self.limit


class Slots:
    """A semaphore with shares: a free slot goes to the highest priority, then to whoever holds fewest.

    It belongs to one event loop.

    Args:
        total: All slots of this process.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._shares: list[Share] = []

    def open_share(self, limit: int, priority: int = 0) -> Share:
        """Lets a further run take part."""
        share = Share(limit, priority)
        self._shares.append(share)
        return share

    def close_share(self, share: Share) -> None:
        """Lets a run take part no longer; nobody may hold or await one of its slots."""
        self._shares.remove(share)

    def adjust(self, share: Share, limit: int, priority: int) -> None:
        """Changes a run's limits. Slots that it holds above a lower limit are not taken away."""
        share.limit, share.priority = limit, priority
        self._hand_out()

    @asynccontextmanager
    async def slot(self, share: Share) -> AsyncIterator[None]:
        """Holds one of a run's slots within an ``async with`` block; waits for it to be free."""
        turn = asyncio.get_running_loop().create_future()
        share.waiting.append(turn)
        self._hand_out()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(share)
            raise
        try:
            yield
        finally:
            self._give_back(share)

    def _give_back(self, share: Share) -> None:
        share.used -= 1
        self._free += 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free:
            wanting = [share for share in self._shares if share.wants_one]
            if not wanting:
                return
            share = min(wanting, key=lambda share: (-share.priority, share.used))
            # What is equal takes turns.
            self._shares.remove(share)
            self._shares.append(share)
            share.used += 1
            self._free -= 1
            share.waiting.popleft().set_result(None)
