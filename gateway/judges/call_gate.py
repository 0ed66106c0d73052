"""Limits the concurrent calls to a judge, with fair shares for tenants."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from dramaturg.service.fair_semaphore import FairSemaphore, FairShare


@dataclass(eq=False, slots=True)
class _Line:
    """The calls of one tenant."""

    share: FairShare
    calls: int = 0
    """The number of running and waiting calls."""


class CallGate:
    """Limits the number of concurrent calls to a judge.

    A free slot goes to the tenant with the fewest running calls, round-robin among equals. Calls of one
    tenant are served in order of arrival. A tenant without running calls waits for at most one turn of every
    other tenant.

    An instance belongs to one event loop.

    Args:
        calls: The maximum of concurrent calls, at least 1.
    """

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._semaphore = FairSemaphore(calls)
        self._lines: dict[str, _Line] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a call is running or waiting."""
        return bool(self._lines)

    def call(self, tenant: str) -> AbstractAsyncContextManager[None]:
        """Waits for a slot of a tenant and holds it within an ``async with`` block."""
        return _Call(self, tenant)

    async def _enter(self, tenant: str) -> _Line:
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = _Line(self._semaphore.open_share(tenant, self._calls))
        line.calls += 1
        try:
            await self._semaphore.acquire(line.share)
        except BaseException:
            self._forget(line)
            raise
        return line

    def _leave(self, line: _Line) -> None:
        self._semaphore.release(line.share)
        self._forget(line)

    def _forget(self, line: _Line) -> None:
        """Removes a call, and the tenant with its last one, to bound memory."""
        line.calls -= 1
        if not line.calls:
            self._semaphore.close_share(line.share)
            del self._lines[line.share.tenant]


class _Call:
    __slots__ = ("_gate", "_line", "_tenant")

    def __init__(self, gate: CallGate, tenant: str) -> None:
        self._gate = gate
        self._tenant = tenant

    async def __aenter__(self) -> None:
        self._line = await self._gate._enter(self._tenant)

    async def __aexit__(self, *_: object) -> None:
        self._gate._leave(self._line)
