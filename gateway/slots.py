"""Shares what this process does at once between tenants, and between what each of them does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Share:
    """A part of the slots, such as one run's. Its limits may be changed at any time."""

    tenant: str
    """Whose it is."""
    limit: int
    """The most slots it holds at once."""
    priority: int = 0
    """Of a tenant's shares those of higher priority come first."""
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

    A free slot goes to the tenant that holds fewest; of its shares to the one of the highest priority, among
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
        self._asking = 0
        """How many wait, or were given a slot and do not know it yet."""

    def open_share(self, tenant: str, limit: int, priority: int = 0) -> Share:
        """Lets a further share of a tenant's take part."""
        share = Share(tenant, limit, priority)
        self._shares.setdefault(tenant, []).append(share)
        return share

    def close_share(self, share: Share) -> None:
        """Lets a share take part no longer; nobody may hold or await one of its slots."""
        self._shares[share.tenant].remove(share)
        if not self._shares[share.tenant]:
            del self._shares[share.tenant]

    def adjust(self, share: Share, limit: int, priority: int) -> None:
        """Changes a share's limits. Slots that it holds above a lower limit are not taken away."""
        share.limit, share.priority = limit, priority
        self._hand_out()

    def slot(self, share: Share) -> AbstractAsyncContextManager[None]:
        """Holds one of a share's slots within an ``async with`` block; waits for it to be free."""
        return _Slot(self, share)

    @asynccontextmanager
    async def single(self, tenant: str, priority: int = 0) -> AsyncIterator[None]:
        """Holds a slot within an ``async with`` block, for what needs one alone."""
        share = self.open_share(tenant, 1, priority)
        try:
            async with self.slot(share):
                yield
        finally:
            self.close_share(share)

    async def take(self, share: Share) -> None:
        """Takes one of a share's slots, which is to be given back; waits for it to be free."""
        # While a slot is free nobody waits who may have it.
        if self._free and share.used < share.limit and not share.waiting:
            self._hand(share)
            return
        turn = asyncio.get_running_loop().create_future()
        share.waiting.append(turn)
        self._asking += 1
        try:
            self._hand_out()
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(share)
            raise
        finally:
            self._asking -= 1

    def give_back(self, share: Share) -> None:
        """Gives back a slot that was taken."""
        share.used -= 1
        self._free += 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._asking and self._free and (share := self._next()):
            self._hand(share)
            share.waiting.popleft().set_result(None)

    def _hand(self, share: Share) -> None:
        # What is equal takes turns: who had one goes to the end.
        shares = self._shares.pop(share.tenant)
        shares.remove(share)
        shares.append(share)
        self._shares[share.tenant] = shares
        share.used += 1
        self._free -= 1

    def _next(self) -> Share | None:
        """Whose turn it is; None where nobody wants a slot."""
        wanting: list[Share] = []
        fewest = None
        for shares in self._shares.values():
            used = sum(share.used for share in shares)
            if (fewest is None or used < fewest) and (wants := [one for one in shares if one.wants_one]):
                wanting, fewest = wants, used
                if not used:
                    break
        return min(wanting, key=lambda share: (-share.priority, share.used), default=None)


class _Slot:
    __slots__ = ("_share", "_slots")

    def __init__(self, slots: Slots, share: Share) -> None:
        self._slots = slots
        self._share = share

    async def __aenter__(self) -> None:
        await self._slots.take(self._share)

    async def __aexit__(self, *_: object) -> None:
        self._slots.give_back(self._share)
