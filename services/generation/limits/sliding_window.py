"""A configured limit in any one period."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

PERIOD = 60.0
"""Providers state their limits a minute."""
MARGIN = 1.004
"""Windows count as slightly longer than their period: requests at its very end are often refused."""


@dataclass(slots=True)
class SlidingWindow:
    """A configured limit: no more than this in any one period."""

    limit: float
    period: float = PERIOD
    _log: deque[tuple[float, float]] = field(default_factory=deque)
    _sum: float = 0.0

    def delay(self, now: float, cost: float) -> float:
        """Seconds until ``cost`` fits; 0: now."""
        self._forget(now)
        excess = self._sum + min(cost, self.limit) - self.limit
        if excess <= 1e-9:
            return 0.0
        for at, taken in self._log:
            excess -= taken
            if excess <= 1e-9:
                return max(0.0, at + self.period * MARGIN - now)
        return 0.0

    def take(self, now: float, cost: float) -> None:
        """Counts a request."""
        self._log.append((now, cost))
        self._sum += cost

    def correct(self, now: float, sent: float, difference: float) -> None:
        """Corrects the cost of a call that was sent at that moment, where it is still counted."""
        if sent > now - self.period:
            self.take(sent if not self._log else max(sent, self._log[-1][0]), difference)

    def used(self, now: float) -> float:
        """What was sent in the last period."""
        self._forget(now)
        return self._sum

    def _forget(self, now: float) -> None:
        while self._log and self._log[0][0] <= now - self.period * MARGIN:
            self._sum -= self._log.popleft()[1]
