"""Runs long computations in threads, and stops them when the call is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dramaturg.service.threads import Checkpoint, with_checkpoint
from services.alignment.errors import overloaded

T = TypeVar("T")


class Workers:
    """A bounded pool of threads.

    Threads suffice: numpy and scipy release the interpreter lock in long operations, and large requests need
    not be copied to another process.

    Args:
        workers: The maximum number of concurrent functions.
        waiting: The maximum number of waiting functions; further ones are refused.
    """

    def __init__(self, workers: int, waiting: int) -> None:
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="alignment")
        self._limit = workers + waiting
        self._taken = 0

    async def run(self, work: Callable[[Checkpoint], T]) -> T:
        """Runs ``work`` in a thread; it calls the given checkpoint between chunks.

        If this call is cancelled, the work stops at its next checkpoint and then releases its thread.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_OVERLOADED): the queue is full.
        """
        if self._taken >= self._limit:
            raise overloaded(self._limit)
        return await with_checkpoint(self._in_thread, work)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future = self._executor.submit(call)
        self._taken += 1
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._release))
        return await asyncio.wrap_future(future)

    def _release(self) -> None:
        self._taken -= 1

    async def close(self) -> None:
        """Waits for running work to end."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._executor.shutdown)
