"""How many batches of a run are out at once, and how many samples are in one."""

from __future__ import annotations

import math
import time
from collections import deque

FIRST_SIZE = 25
"""The fewest samples of a batch while the pace is not known; else as many as a gateway's slots hold."""
LARGEST_SIZE = 500
"""The most samples of a batch, unless fewer could not fill the slots."""
BATCH_SECONDS = 5.0
"""How long one gateway takes for a batch: long against the polling of the queue, short against a restart."""
BATCHES_PER_GATEWAY = 2
"""The most batches of one run that one of several gateways works on at once. They share its slots, so that
the slowest sample of one does not idle the others; with more the first to look would take them all."""
BATCHES_OUT_PER_GATEWAY = 3
"""The most batches of one run that are out for each gateway: one more waits than is worked on."""

_PACE_SECONDS = 10.0


class Pace:
    """Samples done a second over the last seconds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def mark(self, done: int) -> None:
        """Notes how many samples are done now, of all."""
        now = time.monotonic()
        self._marks.append((now, done))
        while now - self._marks[0][0] > _PACE_SECONDS:
            self._marks.popleft()

    def rate(self) -> float | None:
        """Samples a second; None while nothing is known."""
        (first, before), (last, after) = self._marks[0], self._marks[-1]
        return (after - before) / (last - first) if last - first >= 1 and after > before else None


def batch_size(rate: float | None, slots: int, gateways: int) -> int:
    """How many samples a batch gets.

    Args:
        rate: Samples of the run done a second, by all gateways. None: not known.
        slots: How many samples are evaluated at once, by all gateways.
        gateways: How many there are, at least 1.
    """
    share = math.ceil(slots / gateways)
    fewest = math.ceil(share / BATCHES_PER_GATEWAY)
    wanted = max(FIRST_SIZE, share) if rate is None else math.ceil(rate / gateways * BATCH_SECONDS)
    return max(fewest, min(LARGEST_SIZE, wanted))


def window_size(slots: int, gateways: int) -> int:
    """How many batches are out at once: no more than slots, where there are fewer of those than gateways.

    Args:
        slots: How many samples are evaluated at once, by all gateways.
        gateways: How many there are, at least 1.
    """
    return slots if slots < gateways else gateways * BATCHES_OUT_PER_GATEWAY


def share_of(rank: int, gateways: int, slots: int) -> int:
    """How many samples of a run one gateway evaluates at once.

    Args:
        rank: Its place among the gateways, from 0.
        gateways: How many there are.
        slots: How many samples are evaluated at once, by all of them.
    """
    each, rest = divmod(slots, gateways)
    # Where there are fewer slots than gateways, no more of them get a batch than there are slots.
    return max(1, each + (1 if rank < rest else 0))
