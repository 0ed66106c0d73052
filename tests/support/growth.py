"""The growth of processor time where an input doubles."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

GROWTH = 2.5
"""The most that time may grow where the input doubles."""
NOISE_SECONDS = 0.02
"""Times below this are those of the clock and of other processes."""
_ROUNDS = 60


def seconds(work: Callable[[], object]) -> float:
    """The processor time of one pass, without garbage collection."""
    gc.disable()
    try:
        begun = time.thread_time()
        work()
        return time.thread_time() - begun
    finally:
        gc.enable()


def faster_than_linear(once: Callable[[], object], twice: Callable[[], object]) -> str | None:
    """Says what an input of twice the length takes; None where the growth is at most ``GROWTH``.

    Other processes slow a measurement down and none speeds it up: the shortest of several passes counts. Both
    lengths are measured in turn until the growth is small enough, at most sixty times.
    """
    after = seconds(twice)
    if after < NOISE_SECONDS:
        return None
    before = float("inf")
    for _ in range(_ROUNDS):
        before = min(before, seconds(once))
        if after <= GROWTH * max(before, NOISE_SECONDS / 2):
            return None
        after = min(after, seconds(twice))
    return f"{before:.3f} s, then {after:.3f} s"
