"""Models of servers with limits. They decide on calls; how calls reach them is another matter."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Headers = Mapping[str, str]


@dataclass
class LimitedServer(ABC):
    """A server that refuses calls, or lets them wait.

    Attributes:
        clock: The time, in seconds.
        latency: Seconds for an answer.
        calls: Calls that came.
        answers: Calls that were answered.
    """

    clock: Callable[[], float]
    latency: float = 0.5
    calls: int = 0
    answers: int = 0
    in_flight: int = 0
    log: list[tuple[float, bool]] = field(default_factory=list)

    async def handle(self) -> tuple[bool, Headers]:
        """Handles a call. Returns whether it is answered, and the headers."""
        self.calls += 1
        refused = self.refuse()
        self.log.append((self.clock(), not refused))
        if refused:
            return False, self.headers(refused=True)
        headers = self.headers(refused=False)
        self.in_flight += 1
        try:
            await self.work()
        finally:
            self.in_flight -= 1
        self.answers += 1
        return True, headers

    async def work(self) -> None:
        """What an answer takes."""
        await asyncio.sleep(self.latency)

    @abstractmethod
    def refuse(self) -> bool:
        """Whether a call that comes now is refused. One that is not is counted."""

    def headers(self, *, refused: bool) -> Headers:
        """The headers of a response."""
        del refused
        return {}

    @abstractmethod
    def ideal(self, count: int) -> float:
        """Seconds for so many answers, at best."""


@dataclass
class Concurrent(LimitedServer):
    """Refuses calls beyond a number at once."""

    most: int = 4

    def refuse(self) -> bool:
        return self.in_flight >= self.most

    def ideal(self, count: int) -> float:
        return math.ceil(count / self.most) * self.latency


@dataclass
class FixedWindow(LimitedServer):
    """Takes a number of calls in each period, and none after that until the next begins."""

    most: int = 60
    period: float = 60.0
    tells: bool = False
    """Whether responses state the limit."""
    begun: float | None = None
    used: int = 0

    def refuse(self) -> bool:
        now = self.clock()
        if self.begun is None:
            self.begun = now
        while now >= self.begun + self.period:
            self.begun, self.used = self.begun + self.period, 0
        if self.used >= self.most:
            return True
        self.used += 1
        return False

    def headers(self, *, refused: bool) -> Headers:
        if not self.tells or self.begun is None:
            return {}
        left = self.begun + self.period - self.clock()
        told = {
            "x-ratelimit-limit-requests": str(self.most),
            "x-ratelimit-remaining-requests": str(self.most - self.used),
            "x-ratelimit-reset-requests": f"{left:.3f}s",
        }
        return told | ({"retry-after": f"{left:.3f}"} if refused else {})

    def ideal(self, count: int) -> float:
        return (math.ceil(count / self.most) - 1) * self.period + self.latency


@dataclass
class SlidingWindow(LimitedServer):
    """Takes a number of calls in any period."""

    most: int = 60
    period: float = 60.0
    taken: deque[float] = field(default_factory=deque)

    def refuse(self) -> bool:
        now = self.clock()
        while self.taken and self.taken[0] <= now - self.period:
            self.taken.popleft()
        if len(self.taken) >= self.most:
            return True
        self.taken.append(now)
        return False

    def ideal(self, count: int) -> float:
        return (math.ceil(count / self.most) - 1) * self.period + self.latency


@dataclass
class TokenBucket(LimitedServer):
    """Takes what a bucket holds that refills steadily."""

    capacity: float = 60.0
    refill: float = 1.0
    """A second."""
    cost: float = 1.0
    """Of a call."""
    tells: bool = False
    """Whether responses state the limit."""
    level: float = -1.0
    at: float = 0.0

    def refuse(self) -> bool:
        now = self.clock()
        if self.level < 0:
            self.level, self.at = self.capacity, now
        self.level = min(self.capacity, self.level + self.refill * (now - self.at))
        self.at = now
        if self.level < self.cost:
            return True
        self.level -= self.cost
        return False

    def headers(self, *, refused: bool) -> Headers:
        if not self.tells:
            return {}
        del refused
        return {
            "x-ratelimit-limit-tokens": f"{self.capacity:.0f}",
            "x-ratelimit-remaining-tokens": f"{self.level:.0f}",
            "x-ratelimit-reset-tokens": f"{(self.capacity - self.level) / self.refill:.3f}s",
        }

    def ideal(self, count: int) -> float:
        return max(0.0, (count * self.cost - self.capacity) / self.refill) + self.latency


@dataclass
class SingleSlot(LimitedServer):
    """Answers one call at a time, in their order; the others wait in it."""

    slot: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def work(self) -> None:
        async with self.slot:
            await asyncio.sleep(self.latency)

    def refuse(self) -> bool:
        return False

    def ideal(self, count: int) -> float:
        return count * self.latency


@dataclass
class Unlimited(LimitedServer):
    """Answers every call."""

    def refuse(self) -> bool:
        return False

    def ideal(self, count: int) -> float:
        del count
        return self.latency
