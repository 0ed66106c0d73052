"""What tenants spend: the usage that the responses of a call report, and what they spent today."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.database import StoreError
from dramaturg.service.threads import ThreadPool
from gateway.runs.records import Spending
from gateway.runs.store import RunStore
from gateway.runs.store_calls import store_unavailable


class CallUsage:
    """Adds up the usage of a call as its responses come.

    The assessments of a stream report what each of them cost, its result reports the total: a call that its
    caller cancels has cost what was sent until then.
    """

    def __init__(self) -> None:
        self.spent = Spending()
        """The usage of the responses so far."""

    def add(self, response: Any) -> Spending:
        """The spending that a response adds."""
        total, parts = _usages(response)
        if total is not None:
            return self.rest(total)
        added = sum(map(Spending.of, parts), Spending())
        self.spent += added
        return added

    def rest(self, total: Usage) -> Spending:
        """The spending that a total adds."""
        all_spent = Spending.of(total)
        added = Spending(
            max(0, all_spent.tokens - self.spent.tokens), max(0.0, all_spent.usd - self.spent.usd)
        )
        self.spent += added
        return added


def _usages(message: Any) -> tuple[Usage | None, list[Usage]]:
    """The total that a message reports, or else the usage of its parts."""
    fields = message.DESCRIPTOR.fields_by_name
    if "usage" in fields and fields["usage"].message_type is Usage.DESCRIPTOR and message.HasField("usage"):
        return message.usage, []
    if "provenance" in fields and message.HasField("provenance"):
        return None, [message.provenance.usage]
    parts: list[Usage] = []
    for field, value in message.ListFields():
        if field.message_type is None or field.is_repeated:
            continue
        total, found = _usages(value)
        if total is not None:
            return total, []
        parts += found
    return None, parts


logger = logging.getLogger(__name__)

_CACHE_SECONDS = 5.0
_RETRY_SECONDS = 1.0
_THREADS = 2


@dataclass
class _Stored:
    """The spending of one tenant in the store, as last read."""

    spent: Spending
    read_at: float
    day: datetime

    @property
    def is_current(self) -> bool:
        return self.day == start_of_day() and time.monotonic() - self.read_at <= _CACHE_SECONDS


class _Failed(NamedTuple):
    """A write of the oldest amounts of a tenant that failed, and may have taken effect."""

    size: int
    repeat: Callable[[], Any]


class DailySpending:
    """Adds up what tenants spend.

    With a run store, spending is that of all gateways that share it, and survives restarts: runs add theirs
    in the transaction that keeps a result, evaluations are added by this class. Spending counts on the day on
    which it is added. Without a store only the evaluations of this process count.
    """

    def __init__(self) -> None:
        self._store: RunStore | None = None
        self._threads: ThreadPool | None = None
        self._stored: dict[str, _Stored] = {}
        self._store_lock: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._unwritten: dict[str, list[Spending]] = {}
        """Spending of evaluations that is not in the store, by tenant."""
        self._failed: dict[str, _Failed] = {}
        self._writers: dict[str, asyncio.Task[None]] = {}
        self._day = start_of_day()
        self._in_memory: defaultdict[str, Spending] = defaultdict(Spending)
        """Spending of the day without a store."""

    @asynccontextmanager
    async def persisted(self, store: RunStore) -> AsyncIterator[None]:
        """Keeps spending in a store within an ``async with`` block."""
        self._store, self._threads = store, ThreadPool(_THREADS)
        try:
            yield
        finally:
            for writer in self._writers.values():
                writer.cancel()
            await asyncio.gather(*self._writers.values(), return_exceptions=True)
            for tenant in tuple(self._unwritten):
                with suppress(StoreError):
                    await self._write(tenant)
            self._threads.close()
            self._store = self._threads = None

    def add(self, tenant: str, spent: Spending) -> None:
        """Adds the spending of an evaluation."""
        if self._store is None:
            self._start_day()
            self._in_memory[tenant] += spent
            return
        self._unwritten.setdefault(tenant, []).append(spent)
        if tenant not in self._writers:
            self._writers[tenant] = asyncio.create_task(self._write_all(tenant))

    async def today(self, tenant: str, *, fresh: bool = False) -> Spending:
        """What a tenant spent today.

        Args:
            tenant: The tenant.
            fresh: Whether the store is read in any case; otherwise a value read seconds ago suffices.

        Raises:
            ServiceError: UNAVAILABLE, ERROR_REASON_STORE_UNAVAILABLE: the spending is unknown.
        """
        if self._store is None or self._threads is None:
            self._start_day()
            return self._in_memory[tenant]
        known = self._stored.get(tenant)
        if fresh or known is None or not known.is_current:
            # One read at a time, and none during a write: an amount would count twice, or not at all.
            async with self._store_lock[tenant]:
                known = self._stored.get(tenant)
                if fresh or known is None or not known.is_current:
                    now, day = time.monotonic(), start_of_day()
                    try:
                        spent = await self._threads(self._store.spending.today, tenant)
                    except StoreError as error:
                        raise store_unavailable(error) from error
                    known = self._stored[tenant] = _Stored(spent, now, day)
        return sum(self._unwritten.get(tenant, ()), known.spent)

    async def active_runs(self, tenant: str) -> int:
        """The number of a tenant's runs that have not ended.

        Raises:
            ServiceError: UNAVAILABLE, ERROR_REASON_STORE_UNAVAILABLE.
        """
        if self._store is None or self._threads is None:
            return 0
        try:
            runs = await self._threads(self._store.runs.active)
        except StoreError as error:
            raise store_unavailable(error) from error
        return sum(run.tenant == tenant for run in runs)

    async def _write_all(self, tenant: str) -> None:
        """Writes the usage of a tenant until none is left, through outages of the store."""
        try:
            while tenant in self._unwritten:
                try:
                    await self._write(tenant)
                except StoreError as error:
                    logger.warning("the spending of a tenant is written later: %s", error)
                    await asyncio.sleep(_RETRY_SECONDS)
        finally:
            del self._writers[tenant]

    async def _write(self, tenant: str) -> None:
        assert self._store is not None
        assert self._threads is not None
        async with self._store_lock[tenant]:
            await self._write_unlocked(self._store, self._threads, tenant)

    async def _write_unlocked(self, store: RunStore, threads: ThreadPool, tenant: str) -> None:
        failed = self._failed.pop(tenant, None)
        count = failed.size if failed else len(self._unwritten[tenant])
        spent = sum(self._unwritten[tenant][:count], Spending())
        write = failed.repeat if failed else partial(store.spending.add, tenant, spent)
        writing = asyncio.ensure_future(threads(write))
        try:
            await asyncio.shield(writing)
        finally:
            # A cancelled write goes on in its thread, and must not be repeated if it succeeds.
            await asyncio.wait([writing])
            error = writing.exception()
            if error is None:
                self._forget(tenant, count, spent)
            elif isinstance(error, StoreError) and error.repeat:
                self._failed[tenant] = _Failed(count, error.repeat)

    def _forget(self, tenant: str, count: int, spent: Spending) -> None:
        """Notes that the oldest ``count`` amounts are in the store."""
        del self._unwritten[tenant][:count]
        if not self._unwritten[tenant]:
            del self._unwritten[tenant]
        if known := self._stored.get(tenant):
            known.spent += spent

    def _start_day(self) -> None:
        if self._day != (today := start_of_day()):
            self._day = today
            self._in_memory.clear()


def start_of_day() -> datetime:
    """The start of this day (UTC)."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def seconds_until_tomorrow() -> float:
    """The seconds until the next day (UTC)."""
    return (start_of_day() + timedelta(days=1) - datetime.now(UTC)).total_seconds()
