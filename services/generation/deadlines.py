"""Until when an answer is of use."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from dramaturg.service import context


class Deadline(Protocol):
    """A moment that may move later while one waits for it.

    Attributes:
        failure: The latest failure of the work under this deadline, set by the work. It is raised in place of
            DeadlinePassedError when the deadline passes.
    """

    failure: Exception | None

    def remaining(self) -> float:
        """Seconds until then; negative once it has passed, infinite where there is none."""


class Until:
    """A fixed moment, in seconds from now. None: never."""

    __slots__ = ("_at", "_clock", "failure")

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.failure: Exception | None = None
        self._at = math.inf if seconds is None else clock() + seconds

    def remaining(self) -> float:
        """Seconds until then."""
        return self._at - self._clock()


def latest(deadlines: Iterable[Deadline]) -> float:
    """Seconds until the last of several deadlines; 0 where there is none left."""
    return max([deadline.remaining() for deadline in deadlines], default=0.0)


def timeout(deadline: Deadline, limit: float = math.inf) -> float | None:
    """The remaining seconds, at most ``limit``, for asyncio timeouts: never negative, None for no limit."""
    seconds = min(limit, deadline.remaining())
    return None if math.isinf(seconds) else max(0.0, seconds)


@dataclass(frozen=True, slots=True)
class DeadlinePolicy:
    """The time that a request gets.

    Attributes:
        maximum: Seconds for a request without a deadline.
        reserve: Seconds kept of a deadline, to still say why a request failed.
    """

    maximum: float
    reserve: float

    def deadline(self) -> Deadline:
        """The deadline of the request being served."""
        remaining = context.remaining()
        return Until(self.maximum if remaining is None else remaining - self.reserve)
