"""Limits that a provider states with its responses, and a configured limit in any one period."""

from __future__ import annotations

import math
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


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit as a provider states it with a response."""

    remaining: float
    """What is left of it."""
    limit: float | None = None
    """The whole of it. None: not stated."""
    reset: float | None = None
    """Seconds until all of it is available again. None: not stated."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits that a response states."""

    requests: Quota | None = None
    tokens: Quota | None = None


class StatedQuota:
    """A quota that the provider states with its responses, counted down between them."""

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._known = False
        self._level = math.inf
        self._limit = math.inf
        self._refill = 0.0
        self._at = -math.inf
        self._reset_at = math.inf
        self._steady = True
        self._doubted = -math.inf
        self._slack = 1.2
        """How much of the cost of a call must have been refilled, as a factor; more after every refusal."""
        self._certain = math.inf
        """What is left without any refill."""

    def state(self, now: float, sent: float, quota: Quota, unseen: float) -> None:
        """Takes a statement.

        Args:
            now: When the response came.
            sent: When its call was sent; the statement is of a moment between the two.
            quota: What it states.
            unseen: What was sent with the call that the response answers, or later: the statement may leave
                it out.
        """
        own = self._level_at(now) if self._known else -math.inf
        self._known = True
        least = quota.remaining - unseen
        refilled = self._refill * (now - sent) if self._steady else 0.0
        self._level = self._certain = min(max(own, least), quota.remaining + refilled)
        self._limit = quota.limit if quota.limit is not None and quota.limit > 0 else math.inf
        self._at = now
        self._reset_at = math.inf if quota.reset is None else now + quota.reset
        used = self._limit - quota.remaining
        self._refill = 0.0
        if math.isfinite(used):
            self._refill = used / quota.reset if quota.reset and used > 0 else self._limit / self._period

    def lower(self, now: float, level: float) -> None:
        """Takes the quota that a refusal states: no call sent since the refused one was accepted."""
        self._level, self._at = min(self._level_at(now), level), now
        self._slack = min(3.0, self._slack + 0.3)

    def contradicted(self, now: float) -> None:
        """Learns that a call was refused which a steady refill would have admitted.

        The second time the quota is taken for a window. Calls sent in the same moment count once.
        """
        if now - self._doubted > self._period / 60:
            self._steady = self._doubted == -math.inf
            self._doubted = now

    def delay(self, now: float, cost: float) -> float:
        """Seconds until ``cost`` is available; 0: now."""
        if not self._known:
            return 0.0
        cost = min(cost, self._limit)
        level = self._level_at(now)
        if level >= cost:
            return 0.0
        until_reset = self._reset_at - now
        if self._steady and self._refill > 0:
            # Slightly late rather than early: clocks and counts differ.
            return min((self._slack * cost - level) / self._refill, until_reset)
        return max(0.0, until_reset) if math.isfinite(until_reset) else 0.0

    def take(self, now: float, cost: float) -> bool:
        """Counts a request. Returns whether it was admitted because of the refill alone."""
        self._level = self._level_at(now) - cost
        self._at = now
        self._certain -= cost
        return self._certain < 0

    def used(self, now: float) -> tuple[float, float] | None:
        """What is used of the limit, and the limit. None: it is not stated."""
        if not self._known or not math.isfinite(self._limit):
            return None
        return max(0.0, self._limit - self._level_at(now)), self._limit

    def _level_at(self, now: float) -> float:
        if now >= self._reset_at:
            self._level, self._at, self._reset_at = self._limit, now, now + self._period
            self._certain = self._limit
        if not self._steady or not self._refill:
            return self._level
        return min(self._limit, self._level + self._refill * (now - self._at))
