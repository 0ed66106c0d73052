"""How long an event loop did nothing else: what it owes to its own work, not to a busy machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path

import grpc

_SCHEDULED = Path("/proc/thread-self/schedstat")
_TICK = 0.002


def waited_for_a_processor() -> float:
    """How long this thread was ready to run and had no processor so far, in seconds.

    The second field of Linux's schedstat (Documentation/scheduler/sched-stats); 0 where there is none.
    """
    try:
        return int(_SCHEDULED.read_text(encoding="ascii").split()[1]) / 1e9
    except OSError:
        return 0.0


async def pauses(work: Awaitable[object]) -> list[float]:
    """For how long at a time, in seconds, the event loop did nothing else while ``work`` was done.

    The times in which others had the processor are left out. A call that fails is work too.
    """
    taken: list[float] = []

    async def watch() -> None:
        while True:
            before, waited = time.monotonic(), waited_for_a_processor()
            await asyncio.sleep(_TICK)
            others = waited_for_a_processor() - waited
            taken.append(max(0.0, time.monotonic() - before - _TICK - others))

    watcher = asyncio.create_task(watch())
    try:
        await work
    except grpc.aio.AioRpcError:
        pass
    finally:
        watcher.cancel()
    return taken
