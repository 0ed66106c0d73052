"""Shares what this process does at once between tenants and their runs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(eq=False)
class Share:
    """One run's part of the slots. Its limits may be changed at any time."""

    tenant: str
    """Whose the run is."""
    limit: int
    """The most slots it holds at once."""
    priority: int = 0
    """Of a tenant's runs those of higher priority come first."""
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
    """A semaphore with shares.

    A free slot goes to the tenant that holds fewest; of its runs to the one of the highest priority, among
    equals to the one that holds fewest; among equals in turn. So a tenant gets no more for having many runs,
    or urgent ones, and what the others do not want is anybody's.

    It belongs to one event loop.

    Args:
        total: All slots of this process.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._shares: dict[str, list[Share]] = {}
        """By tenant. Both the tenants and the shares of each stand in the order of their last turns."""

    def open_share(self, tenant: str, limit: int, priority: int = 0) -> Share:
        """Lets a further run of a tenant take part."""
        share = Share(tenant, limit, priority)
        self._shares.setdefault(tenant, []).append(share)
        return share

    def close_share(self, share: Share) -> None:
        """Lets a run take part no longer; nobody may hold or await one of its slots."""
        self._shares[share.tenant].remove(share)
        if not self._shares[share.tenant]:
            del self._shares[share.tenant]

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

    @asynccontextmanager
    async def single(self, tenant: str, priority: int = 0) -> AsyncIterator[None]:
        """Holds a slot within an ``async with`` block, for what needs one alone."""
        share = self.open_share(tenant, 1, priority)
        try:
            async with self.slot(share):
                yield
        finally:
            self.close_share(share)

    def _give_back(self, share: Share) -> None:
        share.used -= 1
        self._free += 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free and (share := self._next()):
            # What is equal takes turns: who had one goes to the end.
            shares = self._shares.pop(share.tenant)
            shares.remove(share)
            shares.append(share)
            self._shares[share.tenant] = shares
            share.used += 1
            self._free -= 1
            share.waiting.popleft().set_result(None)

    def _next(self) -> Share | None:
        """Whose turn it is; None where nobody wants a slot."""
        wanting = {
            tenant: wants
            for tenant, shares in self._shares.items()
            if (wants := [share for share in shares if share.wants_one])
        }
        if not wanting:
            return None
        tenant = min(wanting, key=lambda tenant: sum(share.used for share in self._shares[tenant]))
        return min(wanting[tenant], key=lambda share: (-share.priority, share.used))
