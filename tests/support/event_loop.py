"""How free an event loop stays while work is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import grpc

# Work that is done in the event loop itself has 0.8 and more.
SHORT_PAUSE = 0.3


async def shortest_pause(work: Callable[[], Awaitable[object]], short: float = SHORT_PAUSE) -> float:
    """The least :func:`longest_pause` of up to 20 tries; the first below ``short`` is the last one.

    Other processes may take the processor for longer than the work pauses the event loop.
    """
    least = 1.0
    for _ in range(20):
        least = min(least, await longest_pause(work()))
        if least < short:
            break
    return least


async def longest_pause(work: Awaitable[object]) -> float:
    """The longest time for which the event loop did nothing else, as a share of the time of ``work``.

    The share is the same on a slow machine. An RPC error of ``work`` is ignored.
    """
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.002)
            longest = max(longest, time.monotonic() - before - 0.002)

    begun = time.monotonic()
    watcher = asyncio.create_task(watch())
    try:
        await work
    except grpc.aio.AioRpcError:
        pass
    finally:
        watcher.cancel()
    return longest / (time.monotonic() - begun)
