"""Paces the samples of runs, so that the calls of other tenants find the event loop free."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from dramaturg.service.fair_semaphore import FairSemaphore
from gateway.quotas.gate import SHARE

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
        self._line = FairSemaphore(1)
        self._last = clock(), computed()

    async def start(self, tenant: str) -> None:
        """Waits until a sample of a tenant may start."""
        async with self._line.single(tenant):
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
