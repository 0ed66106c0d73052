"""The tenants that made the last calls."""

from __future__ import annotations

import time
from typing import NamedTuple

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
