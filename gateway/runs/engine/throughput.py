"""Sizes batches and the number of them in flight from the throughput of a run."""

from __future__ import annotations

import math
import time
from collections import deque

MIN_BATCH_SIZE = 25
"""The samples of a batch while the throughput is unknown, unless the slots of a gateway hold more."""
MAX_BATCH_SIZE = 500
"""The most samples of a batch, unless they could not fill the slots."""
BATCH_SECONDS = 5.0
"""The duration a batch is sized for: long against the polling of the queue, short against a restart."""
BATCHES_PER_GATEWAY = 2
"""The most batches of one run that one of several gateways works on at once. They share slots, so that the
slowest sample of one leaves none idle; with more, the first gateway to poll would take them all."""
BATCHES_IN_FLIGHT_PER_GATEWAY = 3
"""The most batches of one run in flight for each gateway: one waits beyond those worked on."""

_WINDOW_SECONDS = 10.0


class ThroughputMeter:
    """Measures completed samples per second over the last ten seconds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def record(self, done: int) -> None:
        """Records the number of samples done so far."""
        now = time.monotonic()
        self._marks.append((now, done))
        while now - self._marks[0][0] > _WINDOW_SECONDS:
            self._marks.popleft()

    def rate(self) -> float | None:
        """Samples per second; None while unknown."""
        (first, before), (last, after) = self._marks[0], self._marks[-1]
        return (after - before) / (last - first) if last - first >= 1 and after > before else None


def batch_size(rate: float | None, slots: int, gateways: int) -> int:
    """The number of samples of a batch.

    Args:
        rate: Samples of the run per second, over all gateways. None: unknown.
        slots: The samples of the run evaluated at once, over all gateways.
        gateways: The number of gateways, at least 1.
    """
    share = math.ceil(slots / gateways)
    fewest = math.ceil(share / BATCHES_PER_GATEWAY)
    wanted = max(MIN_BATCH_SIZE, share) if rate is None else math.ceil(rate / gateways * BATCH_SECONDS)
    return max(fewest, min(MAX_BATCH_SIZE, wanted))


def max_batches_in_flight(slots: int, gateways: int) -> int:
    """The number of batches of a run in flight: with fewer slots than gateways one for each slot.

    Args:
        slots: The samples of the run evaluated at once, over all gateways.
        gateways: The number of gateways, at least 1.
    """
    return slots if slots < gateways else gateways * BATCHES_IN_FLIGHT_PER_GATEWAY


def slots_of(rank: int, gateways: int, slots: int) -> int:
    """The samples of a run that one gateway evaluates at once.

    Args:
        rank: The position of the gateway among all, from 0.
        gateways: The number of gateways.
        slots: The samples of the run evaluated at once, over all gateways.
    """
    each, rest = divmod(slots, gateways)
    # With fewer slots than gateways, only as many gateways get a batch as there are slots.
    return max(1, each + (1 if rank < rest else 0))
