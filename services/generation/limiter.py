"""How many calls a provider gets at once: found out, not guessed.

Additive increase, multiplicative decrease, as TCP finds a path's capacity (Jacobson, "Congestion avoidance
and control", SIGCOMM 1988), with a slow start. A round is as many answers as the limit was; only a round
that really used the limit says anything about it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class ConcurrencyBounds:
    """Within what the limit moves, and how."""

    minimum: int = 1
    start: int = 32
    maximum: int = 256
    decrease: float = 0.7
    """What a rate limit multiplies the limit by."""
    increase: float = 0.05
    """What a full round adds after the first rate limit, as a share of the limit, at least one call."""
    cooldown: float = 5.0
    """Seconds after a decrease in which the limit stays: calls sent before it still come back refused."""
    used: float = 0.8
    """The share of the limit that a round must have had under way at once to count."""


class Outcome(Enum):
    """How a call ended, as far as the limit is concerned."""

    ANSWERED = auto()
    RATE_LIMITED = auto()
    OTHER = auto()


class AdaptiveLimiter:
    """Admits calls first come, first served, up to a limit that adapts."""

    def __init__(
        self, bounds: ConcurrencyBounds | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bounds = bounds or ConcurrencyBounds()
        self._clock = clock
        self._limit = self._bounds.start
        self._in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._slow_start = True
        self._steady_until = -math.inf
        self._answered = 0
        self._peak = 0

    @property
    def limit(self) -> int:
        """How many calls are admitted at once now."""
        return self._limit

    @property
    def in_flight(self) -> int:
        """How many calls are under way."""
        return self._in_flight

    @property
    def waiting(self) -> int:
        """How many calls wait to be admitted."""
        return len(self._waiting)

    def try_acquire(self) -> bool:
        """Whether the call may go at once. If so, one [release] must follow."""
        if self._waiting or self._in_flight >= self._limit:
            return False
        self._admit()
        return True

    async def acquire(self) -> None:
        """Waits until the call may go. Every return must be followed by one [release]."""
        if self.try_acquire():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # Admitted and cancelled in the same moment: the slot goes to the next.
                self._leave()
            else:
                self._waiting.remove(turn)
            raise

    def release(self, outcome: Outcome, retry_after: float | None = None) -> None:
        """Ends a call and learns from how it ended."""
        if outcome is Outcome.RATE_LIMITED:
            self._shrink(retry_after or 0.0)
        elif outcome is Outcome.ANSWERED:
            self._answered += 1
            if self._answered >= self._limit:
                self._end_round()
        self._leave()

    def _leave(self) -> None:
        self._in_flight -= 1
        while self._waiting and self._in_flight < self._limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self._admit()
                turn.set_result(None)

    def _admit(self) -> None:
        self._in_flight += 1
        if self._in_flight > self._peak:
            self._peak = self._in_flight

    def _shrink(self, retry_after: float) -> None:
        now = self._clock()
        if now < self._steady_until:
            return
        self._slow_start = False
        self._steady_until = now + max(self._bounds.cooldown, retry_after)
        self._limit = max(self._bounds.minimum, math.floor(self._limit * self._bounds.decrease))
        self._begin_round()

    def _end_round(self) -> None:
        full = self._peak >= self._limit * self._bounds.used
        if full and self._clock() >= self._steady_until:
            gradual = max(1, math.floor(self._limit * self._bounds.increase))
            step = self._limit if self._slow_start else gradual
            self._limit = min(self._bounds.maximum, self._limit + step)
        self._begin_round()

    def _begin_round(self) -> None:
        self._answered = 0
        self._peak = self._in_flight
