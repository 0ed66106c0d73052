"""Runs what is long to compute off the event loop, and stops it when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from services.alignment.errors import overloaded

T = TypeVar("T")
Checkpoint = Callable[[], None]
"""Called between two chunks of work; raises ``Abandoned`` where the work is wanted no longer."""


class Abandoned(Exception):  # noqa: N818  (it ends a thread's work and never reaches a caller)
    """The call was cancelled or its deadline exceeded."""


class Workers:
    """A bounded pool of threads.

    Threads do: numpy and scipy let go of the interpreter lock in what takes long, and a request of megabytes
    need not be copied to another process.

    Args:
        workers: The most functions that run at once.
        waiting: The most that wait for a thread; the next is refused.
    """

    def __init__(self, workers: int, waiting: int) -> None:
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="alignment")
        self._limit = workers + waiting
        self._taken = 0

    async def run(self, work: Callable[[Checkpoint], T]) -> T:
        """Runs ``work`` in a thread; it calls the checkpoint that it is given between its chunks.

        Where this call is cancelled, the work ends at its next checkpoint, and its place is free then.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_OVERLOADED): as many wait as may.
        """
        if self._taken >= self._limit:
            raise overloaded(self._limit)
        abandoned = threading.Event()

        def checkpoint() -> None:
            if abandoned.is_set():
                raise Abandoned

        def start() -> T:
            checkpoint()
            return work(checkpoint)

        loop = asyncio.get_running_loop()
        future = self._executor.submit(start)
        self._taken += 1
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._release))
        try:
            return await asyncio.wrap_future(future)
        finally:
            abandoned.set()

    def _release(self) -> None:
        self._taken -= 1

    async def close(self) -> None:
        """Waits for running work to end."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._executor.shutdown)
