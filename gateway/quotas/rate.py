"""How many calls a minute, and how many at once."""

from __future__ import annotations

import time
from collections.abc import Callable

_MINUTE = 60.0


class Rate:
    """A token bucket: a minute's worth of calls at once, then one whenever its share of the minute is over.

    Args:
        a_minute: How many calls a minute.
        clock: Tells the time in seconds.
    """

    def __init__(self, a_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._a_minute = a_minute
        self._clock = clock
        self._left = float(a_minute)
        self._seen = clock()

    def take(self) -> float:
        """Takes one. Returns 0, or, where none is left, after how many seconds there is one."""
        now = self._clock()
        self._left = min(self._a_minute, self._left + (now - self._seen) * self._a_minute / _MINUTE)
        self._seen = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) * _MINUTE / self._a_minute
