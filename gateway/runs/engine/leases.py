"""Registry of live gateways: leases, and the end of a process that lost its own.

DBOS has no fail-over: the work of a process that dies stays assigned to it. Each gateway therefore renews a
lease in the store, and the work of a gateway without one is returned to its queue (``reconciler``).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress

from dramaturg.database.errors import StoreError
from dramaturg.database.leases import Leases
from dramaturg.service.threads import ThreadPool
from gateway.runs.engine import metrics
from gateway.runs.engine.workflows import version_of

logger = logging.getLogger(__name__)

LOST_LEASE_STATUS = 70
"""The exit status of a gateway that lost its lease (EX_SOFTWARE)."""

_CACHE_SECONDS = 2.0
_CHECK_SECONDS = 0.5


class ClusterMembership:
    """The gateways that share a store, this one included.

    Args:
        executor_id: The identity of this gateway.
        leases: The leases of the gateways.
        threads: Reads and writes them.
        single: Whether no other gateway can exist, as on SQLite, where the file is locked.
        lease_seconds: The duration of a lease.
    """

    def __init__(
        self, executor_id: str, leases: Leases, threads: ThreadPool, *, single: bool, lease_seconds: float
    ) -> None:
        self.executor_id = executor_id
        self.single = single
        self._leases = leases
        self._threads = threads
        self._lease_seconds = lease_seconds
        self._known: Sequence[str] = (executor_id,)
        self._known_until = 0.0
        self._held_until = float("inf")

    async def live(self) -> Sequence[str]:
        """The ids of the live gateways, sorted. This gateway is always included.

        Raises:
            StoreError: The store is unavailable.
        """
        if self.single:
            return self._known
        found = await self._threads(self._leases.live)
        self._known = sorted({*found, self.executor_id})
        self._known_until = time.monotonic() + _CACHE_SECONDS
        return self._known

    async def peers(self) -> Sequence[str]:
        """The live gateways with the same workflow version, sorted; cached for two seconds."""
        if time.monotonic() > self._known_until:
            # During an outage of the store the last known gateways count.
            with suppress(StoreError):
                await self.live()
        version = version_of(self.executor_id)
        return [executor_id for executor_id in self._known if version_of(executor_id) == version]

    async def is_leader(self) -> bool:
        """Whether this gateway reconciles runs: the first live gateway by id does."""
        return (await self.live())[0] == self.executor_id

    async def renew(self) -> None:
        """Renews the lease.

        Raises:
            StoreError: The store is unavailable.
        """
        # The clock starts before the call, so that this process gives up before the others take over.
        started = time.monotonic()
        await self._threads(self._leases.renew, self.executor_id, self._lease_seconds)
        self._exit_if_lost()
        self._held_until = started + self._lease_seconds

    async def leave(self) -> None:
        """Drops the lease, so that other gateways take over at once."""
        self._held_until = float("inf")
        await self._threads(self._leases.drop, self.executor_id)

    async def keep_lease(self, interval_seconds: float) -> None:
        """Renews the lease until cancelled; ends the process when the lease is lost."""
        metrics.LEASE_SECONDS.watch(lambda: self._held_until - time.monotonic())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            while True:
                await asyncio.sleep(interval_seconds)
                try:
                    await self.renew()
                except StoreError as error:
                    metrics.RENEWAL_FAILURES.add()
                    logger.warning("the lease could not be renewed: %s", error)
                except Exception:
                    # Any error ends the process only if it lasts as long as the lease.
                    logger.exception("the lease could not be renewed")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            self._exit_if_lost()

    def _exit_if_lost(self) -> None:
        """Ends the process without cleanup: its work belongs to another gateway by now."""
        if time.monotonic() > self._held_until:
            logger.critical(
                "the lease could not be renewed for %.0f s: this process exits, and other gateways take over "
                "its runs",
                self._lease_seconds,
            )
            logging.shutdown()
            os._exit(LOST_LEASE_STATUS)
