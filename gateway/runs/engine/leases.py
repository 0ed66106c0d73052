"""Who works on runs: leases, the end of a process that lost its own, and the work of those that are gone.

DBOS has no fail-over: what a process had when it died stays its own for ever. Here every gateway says every
few seconds that it lives, and what belongs to one that does not is put back into its queue.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress

from gateway.runs.engine import metrics
from gateway.runs.engine.database import contract_of
from gateway.runs.engine.threads import Threads
from gateway.runs.store.base import RunStore, StoreError

logger = logging.getLogger(__name__)

LOST_LEASE_STATUS = 70
"""The exit status of a gateway that ended itself (EX_SOFTWARE)."""

_BELIEVED_SECONDS = 2.0
_WATCH_SECONDS = 0.5


class Gateways:
    """The gateways that share a store, this one included.

    Args:
        executor: The name of this one.
        store: The store.
        threads: Where it is called.
        alone: Whether there can be no other, as on SQLite, where the file is locked.
        lease_seconds: For how long the others believe that this one lives.
    """

    def __init__(
        self, executor: str, store: RunStore, threads: Threads, *, alone: bool, lease_seconds: float
    ) -> None:
        self.executor = executor
        self.alone = alone
        self._store = store
        self._threads = threads
        self._lease_seconds = lease_seconds
        self._known: Sequence[str] = (executor,)
        self._known_until = 0.0
        self._held_until = float("inf")

    async def live(self) -> Sequence[str]:
        """The names of those that live now, sorted; this one is always among them.

        Raises:
            StoreError: The store cannot be used.
        """
        if self.alone:
            return self._known
        found = await self._threads(self._store.live_executors)
        self._known = sorted({*found, self.executor})
        self._known_until = time.monotonic() + _BELIEVED_SECONDS
        return self._known

    async def peers(self) -> Sequence[str]:
        """Those that live, as of a moment ago, and have the same version of the workflows, sorted."""
        if time.monotonic() > self._known_until:
            # Where the store cannot be used they are taken for the same as before.
            with suppress(StoreError):
                await self.live()
        contract = contract_of(self.executor)
        return [executor for executor in self._known if contract_of(executor) == contract]

    async def leads(self) -> bool:
        """Whether this one looks after the work of those that are gone: one does, the first by name."""
        return (await self.live())[0] == self.executor

    async def renew(self) -> None:
        """Says that this one lives.

        Raises:
            StoreError: The store cannot be used.
        """
        # From before the call: the others count from a later moment, so that this one ends first.
        asked = time.monotonic()
        await self._threads(self._store.renew_lease, self.executor, self._lease_seconds)
        self._end_if_lost()
        self._held_until = asked + self._lease_seconds

    async def drop(self) -> None:
        """Says that this one stops in order, so that its work is taken over at once."""
        self._held_until = float("inf")
        await self._threads(self._store.drop_lease, self.executor)

    async def hold(self, every_seconds: float) -> None:
        """Renews the lease for ever; ends the process when it is lost."""
        metrics.LEASE_SECONDS.watch(lambda: self._held_until - time.monotonic())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            while True:
                await asyncio.sleep(every_seconds)
                try:
                    await self.renew()
                except StoreError as error:
                    metrics.RENEWAL_FAILURES.add()
                    logger.warning("the lease could not be renewed: %s", error)
                except Exception:
                    # Whatever it is, it ends the process only when it lasts.
                    logger.exception("the lease could not be renewed")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            self._end_if_lost()

    def _end_if_lost(self) -> None:
        """Ends the process whose work is somebody else's by now: no handler of it can be trusted to stop."""
        if time.monotonic() > self._held_until:
            logger.critical(
                "the lease on the store of runs could not be renewed for %.0f s: this process ends, and its "
                "runs go on elsewhere",
                self._lease_seconds,
            )
            logging.shutdown()
            os._exit(LOST_LEASE_STATUS)
