"""A semaphore that divides its slots fairly between tenants and between the work of each tenant."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class FairShare:
    """One claim on the slots of a semaphore, for example of one run. Its limits may change at any time."""

    tenant: str
    limit: int
    """The most slots the share holds at once."""
    priority: int = 0
    """Orders the shares of one tenant, the highest first."""
    used: int = 0
    """The slots the share holds."""
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    """The waiters, the longest first."""

    @property
    def wants_slot(self) -> bool:
        """Whether a waiter exists and the limit allows another slot."""
        while self.waiting and self.waiting[0].done():
            self.waiting.popleft()
        return bool(self.waiting) and self.used < self.limit


class FairSemaphore:
    """A semaphore with shares.

    A free slot goes to the tenant that holds fewest; within the tenant to the share of the highest priority,
    then to the share that holds fewest, then to the share served least recently. A tenant therefore gains
    nothing from many runs or high priorities, and slots that other tenants do not request are free to use.

    Bound to one event loop.

    Args:
        total: The number of slots.
        per_tenant: The most slots of one tenant. None: any number.
    """

    def __init__(self, total: int, per_tenant: int | None = None) -> None:
        self._free = total
        self._per_tenant = per_tenant
        self._shares: dict[str, list[FairShare]] = {}
        """By tenant. Tenants, and the shares of each tenant, are ordered by their last turn."""
        self._used: dict[str, int] = {}
        """The slots that each tenant holds."""
        self._pending = 0
        """Acquisitions that wait, or hold a slot but have not resumed."""

    @property
    def has_waiting(self) -> bool:
        """Whether an acquisition waits."""
        return self._pending > 0

    def open_share(self, tenant: str, limit: int, priority: int = 0) -> FairShare:
        """Registers a share of a tenant."""
        share = FairShare(tenant, limit, priority)
        self._shares.setdefault(tenant, []).append(share)
        self._used.setdefault(tenant, 0)
        return share

    def close_share(self, share: FairShare) -> None:
        """Removes a share that neither holds nor awaits a slot."""
        self._shares[share.tenant].remove(share)
        if not self._shares[share.tenant]:
            del self._shares[share.tenant], self._used[share.tenant]

    def adjust(self, share: FairShare, limit: int, priority: int) -> None:
        """Changes the limits of a share. Slots held above a lower limit are kept until released."""
        share.limit, share.priority = limit, priority
        self._assign()

    def slot(self, share: FairShare) -> AbstractAsyncContextManager[None]:
        """Holds one slot of a share within an ``async with`` block."""
        return _Slot(self, share)

    @asynccontextmanager
    async def single(self, tenant: str, priority: int = 0) -> AsyncIterator[None]:
        """Holds one slot within an ``async with`` block, under a share of its own."""
        share = self.open_share(tenant, 1, priority)
        try:
            async with self.slot(share):
                yield
        finally:
            self.close_share(share)

    async def acquire(self, share: FairShare) -> None:
        """Takes one slot of a share, waiting until one is free. Pair it with ``release``."""
        # While a slot is free, no waiter is entitled to it.
        if self._free and share.used < share.limit and not share.waiting and self._may_take(share.tenant):
            self._grant(share)
            return
        turn = asyncio.get_running_loop().create_future()
        share.waiting.append(turn)
        self._pending += 1
        try:
            self._assign()
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(share)
            raise
        finally:
            self._pending -= 1

    def release(self, share: FairShare) -> None:
        """Returns a slot that ``acquire`` took."""
        share.used -= 1
        self._used[share.tenant] -= 1
        self._free += 1
        if self._pending:
            self._assign()

    def _assign(self) -> None:
        while self._pending and self._free and (share := self._next()):
            self._grant(share)
            share.waiting.popleft().set_result(None)

    def _grant(self, share: FairShare) -> None:
        # Round-robin among equals: the share and its tenant move to the end.
        shares = self._shares.pop(share.tenant)
        if len(shares) > 1:
            shares.remove(share)
            shares.append(share)
        self._shares[share.tenant] = shares
        share.used += 1
        self._used[share.tenant] += 1
        self._free -= 1

    def _may_take(self, tenant: str) -> bool:
        return self._per_tenant is None or self._used[tenant] < self._per_tenant

    def _next(self) -> FairShare | None:
        """The share that gets the next slot; None if no share waits for one."""
        wanting: list[FairShare] = []
        fewest = None
        for tenant, shares in self._shares.items():
            used = self._used[tenant]
            if (
                (fewest is None or used < fewest)
                and self._may_take(tenant)
                and (wants := [one for one in shares if one.wants_slot])
            ):
                wanting, fewest = wants, used
                if not used:
                    break
        if len(wanting) < 2:
            return wanting[0] if wanting else None
        return min(wanting, key=lambda share: (-share.priority, share.used))


class _Slot:
    __slots__ = ("_semaphore", "_share")

    def __init__(self, semaphore: FairSemaphore, share: FairShare) -> None:
        self._semaphore = semaphore
        self._share = share

    async def __aenter__(self) -> None:
        await self._semaphore.acquire(self._share)

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release(self._share)
