"""Reports built once per version of a run."""

from __future__ import annotations

import asyncio
import zlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from dramaturg.service.threads import FairSemaphore, TenantThreads

MAX_BYTES = 64 << 20
"""The most bytes of all reports that are kept, compressed."""
MAX_BUILDS = 4
"""The reports that are built at once; tenants are served equally."""

Key = tuple[str, int, int]
"""The run, its cursor and the sample limit."""
Build = Callable[[], AsyncGenerator[bytes]]


@dataclass(eq=False)
class _Pending:
    """A report that is being built."""

    task: asyncio.Task[Sequence[bytes]]
    waiting: int = 0
    """The calls that wait for it."""


class ReportCache:
    """Keeps the last reports. Calls for a report that is being built wait for it.

    A report is kept under the cursor of its run, which every change of the run advances.

    Args:
        threads: Decompress the pieces: many calls may read a report at once.
        max_bytes: The most bytes of all kept reports, compressed. A larger report is built for each call.
        max_builds: The reports that are built at once.
    """

    def __init__(
        self, threads: TenantThreads, max_bytes: int = MAX_BYTES, max_builds: int = MAX_BUILDS
    ) -> None:
        self._threads = threads
        self._max_bytes = max_bytes
        self._turns = FairSemaphore(max_builds)
        self._kept: OrderedDict[Key, Sequence[bytes]] = OrderedDict()
        self._bytes = 0
        self._pending: dict[Key, _Pending] = {}

    async def pieces(self, tenant: str, key: Key, build: Build) -> AsyncGenerator[bytes]:
        """Yields the pieces of a report.

        Args:
            tenant: The tenant of the run.
            key: Identifies the report.
            build: Yields its pieces, each compressed by zlib. Called if the report is neither kept nor being
                built.
        """
        packed = self._kept.get(key)
        if packed is None:
            packed = await self._built(tenant, key, build)
        else:
            self._kept.move_to_end(key)
        for piece in packed:
            yield await self._threads(tenant, zlib.decompress, piece)

    async def _built(self, tenant: str, key: Key, build: Build) -> Sequence[bytes]:
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending(asyncio.create_task(self._build(tenant, key, build)))
        pending.waiting += 1
        try:
            return await asyncio.shield(pending.task)
        finally:
            pending.waiting -= 1
            if not pending.waiting:
                pending.task.cancel()
                if self._pending.get(key) is pending:
                    del self._pending[key]

    async def _build(self, tenant: str, key: Key, build: Build) -> Sequence[bytes]:
        async with self._turns.single(tenant), aclosing(build()) as pieces:
            packed = [piece async for piece in pieces]
        self._keep(key, packed)
        return packed

    def _keep(self, key: Key, packed: Sequence[bytes]) -> None:
        size = sum(map(len, packed))
        if size > self._max_bytes:
            return
        for older in [known for known in self._kept if known[0] == key[0] and known[1] < key[1]]:
            self._drop(older)
        self._kept[key] = packed
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        self._bytes -= sum(map(len, self._kept.pop(key)))
