"""The turns of tenants: whose calls start when several tenants make calls."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

RECENT_SECONDS = 1.0
SHARE = 0.3
"""The part of the time for which long work of a tenant computes beside calls of others."""


class _Caller(NamedTuple):
    tenant: str
    time: float


class RecentCalls:
    """The last calls of two tenants."""

    def __init__(self) -> None:
        self._last: _Caller | None = None
        self._other: _Caller | None = None
        """The last call of another tenant than that of the last call."""

    def note(self, tenant: str) -> None:
        """Notes a call."""
        if self._last is not None and self._last.tenant != tenant:
            self._other = self._last
        self._last = _Caller(tenant, time.monotonic())

    def has_others(self, tenant: str) -> bool:
        """Whether another tenant made a call within the last second."""
        last = self._last
        if last is not None and last.tenant == tenant:
            last = self._other
        return last is not None and time.monotonic() - last.time < RECENT_SECONDS


MAX_WAITING = 1000
"""The most calls of a tenant that wait. A further one does not wait: the limits of calls refuse it."""
_QUIET_SECONDS = 0.001


class _Waiting(NamedTuple):
    start: asyncio.Future[None]
    call: asyncio.Task[Any]


class CallTurns:
    """Starts the calls of a tenant one after another, beside calls of other tenants.

    A call of a tenant that has none in work starts at once. The next ones wait until that one has ended and
    its tenant was idle for the rest of the time beside its share, and no call has arrived for a moment, but
    ``max_seconds`` at most. They are not read meanwhile, so that a burst delays its own tenant alone.
    Bound to one event loop.

    Args:
        has_others: Whether tenants other than the given one make calls.
        max_seconds: The longest time from the start of a call to that of the next one.
    """

    def __init__(self, has_others: Callable[[str], bool], max_seconds: float) -> None:
        self._has_others = has_others
        self._max_seconds = max_seconds
        self._lines: dict[str, deque[_Waiting]] = {}
        """The calls that wait, by tenants that have a call in work."""
        self._starters = set[asyncio.Task[None]]()
        self._last_arrival = 0.0

    async def take(self, tenant: str) -> None:
        """Waits until the call of the current task may start."""
        self._last_arrival = time.monotonic()
        call = asyncio.current_task()
        assert call is not None
        line = self._lines.get(tenant)
        if line is None:
            if self._has_others(tenant):
                line = self._lines[tenant] = deque()
                starter = asyncio.create_task(self._start_all(tenant, line, call))
                self._starters.add(starter)
                starter.add_done_callback(self._starters.discard)
        elif len(line) < MAX_WAITING:
            start = asyncio.get_running_loop().create_future()
            line.append(_Waiting(start, call))
            await start

    async def _start_all(self, tenant: str, line: deque[_Waiting], call: asyncio.Task[Any]) -> None:
        """Starts the calls of a line, after a call that has started."""
        while True:
            begun = time.monotonic()
            await asyncio.wait([call], timeout=self._max_seconds)
            if _wants_turn(line) and self._has_others(tenant):
                await self._pause(begun)
            # All of them at once if no other tenant makes calls any more.
            while _wants_turn(line):
                start, call = line.popleft()
                start.set_result(None)
                if self._has_others(tenant):
                    break
            else:
                del self._lines[tenant]
                return

    async def _pause(self, begun: float) -> None:
        """Waits after a call that started at a time."""
        worked = time.monotonic() - begun
        wait = worked / SHARE - worked
        while (left := begun + self._max_seconds - time.monotonic()) > 0 and wait > 0:
            await asyncio.sleep(min(wait, left))
            wait = self._last_arrival + _QUIET_SECONDS - time.monotonic()


def _wants_turn(line: deque[_Waiting]) -> bool:
    """Whether a call waits whose caller has not cancelled it."""
    while line and line[0].start.done():
        line.popleft()
    return bool(line)
