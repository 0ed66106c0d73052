"""What the parts of the run engine of one gateway share: the cluster, the pace of samples, the store.

DBOS has no fail-over: the work of a process that dies stays assigned to it. Each gateway therefore renews a
lease in the store, and the work of a gateway without one is recovered.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from dramaturg.database import StoreError
from dramaturg.database.database import Leases
from dramaturg.service.threads import TenantTurns, ThreadPool
from gateway.quotas.turns import SHARE
from gateway.runs import metrics
from gateway.runs.engine.sample_evaluation import SampleEvaluator
from gateway.runs.engine.workflows import WorkflowClient, version_of
from gateway.runs.notifications import ChangeNotifier
from gateway.runs.settings import RunsSettings
from gateway.runs.store import RunStore
from gateway.runs.store_calls import RetryingCaller

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
        on_count: Called with the number of live gateways when it is read, with each renewal at least.
    """

    def __init__(
        self,
        executor_id: str,
        leases: Leases,
        threads: ThreadPool,
        *,
        single: bool,
        lease_seconds: float,
        on_count: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.executor_id = executor_id
        self.single = single
        self._leases = leases
        self._threads = threads
        self._lease_seconds = lease_seconds
        self._on_count = on_count
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
        self._on_count(len(self._known))
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
        await self.live()

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


MAX_WAIT_SECONDS = 0.1
"""The longest wait of a start for this, so that runs advance on a gateway that is always busy."""
_SHORTEST_WAIT_SECONDS = 0.0005


class SamplePacer:
    """Starts samples one at a time, each in a turn of the event loop of its own.

    Beside calls of other tenants, a sample starts once the event loop has been idle for most of the time
    since the last start. A run whose judges answer at once takes the whole event loop otherwise. Bound to one
    event loop.

    Args:
        has_other_calls: Whether tenants other than the given one make calls.
        clock: The time, in seconds.
        computed: The time for which the thread of the event loop has computed, in seconds.
    """

    def __init__(
        self,
        has_other_calls: Callable[[str], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
        computed: Callable[[], float] = time.thread_time,
    ) -> None:
        self._has_other_calls = has_other_calls
        self._clock = clock
        self._computed = computed
        self._line = TenantTurns(1, 1)
        self._last = clock(), computed()

    async def start(self, tenant: str) -> None:
        """Waits until a sample of a tenant may start."""
        with await self._line.take(tenant):
            await asyncio.sleep(0)
            if self._has_other_calls(tenant):
                await self._until_idle()
            self._last = self._clock(), self._computed()

    async def _until_idle(self) -> None:
        end = self._clock() + MAX_WAIT_SECONDS
        wait = self._wait()
        while (left := end - self._clock()) > 0 and wait > _SHORTEST_WAIT_SECONDS:
            await asyncio.sleep(min(wait, left))
            wait = self._wait()

    def _wait(self) -> float:
        """The time until the computed part is small enough, if the event loop stays idle."""
        begun, computed = self._last
        return (self._computed() - computed) / SHARE - (self._clock() - begun)


@dataclass(frozen=True)
class EngineParts:
    """What the parts of the run engine of one gateway share."""

    settings: RunsSettings
    store: RunStore
    threads: ThreadPool
    """Runs store calls."""
    call: RetryingCaller
    """Runs store calls until they succeed."""
    workflows: WorkflowClient
    """The workflows of all gateways."""
    membership: ClusterMembership
    """The gateways that execute runs."""
    notifier: ChangeNotifier
    """Notifies on changes of runs."""
    evaluator: SampleEvaluator
    """Evaluates one sample."""
    pacer: SamplePacer
    """Paces the samples."""
