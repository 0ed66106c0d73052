"""Limits the calls per minute."""

from __future__ import annotations

import time
from collections.abc import Callable

_MINUTE = 60.0


class TokenBucket:
    """Allows a minute's calls at once, and then refills evenly.

    Args:
        calls_per_minute: The limit.
        clock: The time in seconds.
    """

    def __init__(self, calls_per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = calls_per_minute
        self._clock = clock
        self._left = float(calls_per_minute)
        self._updated = clock()

    def take(self, count: int = 1) -> float:
        """Takes calls. Returns 0, or the seconds until they are available if they are not.

        More calls than a minute's are taken when a minute's are available; the wait for the next ones is
        longer accordingly.
        """
        now = self._clock()
        self._left = min(self._limit, self._left + (now - self._updated) * self._limit / _MINUTE)
        self._updated = now
        wanted = min(count, self._limit)
        if self._left >= wanted:
            self._left -= count
            return 0.0
        return (wanted - self._left) * _MINUTE / self._limit
