"""Runs long computations in a thread, one at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from services.roles.clusters import Checkpoint

T = TypeVar("T")


class Abandoned(Exception):  # noqa: N818  (it ends a thread's work and never reaches a caller)
    """The call was cancelled or its deadline exceeded."""


class Worker:
    """Runs one computation at a time; concurrency would need more memory and save no time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, work: Callable[[Checkpoint], T]) -> T:
        """Runs ``work`` in a thread; it calls the given checkpoint between its parts.

        If this call is cancelled, the work stops at its next checkpoint, and the next work starts then.
        """
        async with self._turn:
            abandoned = threading.Event()

            def checkpoint() -> None:
                if abandoned.is_set():
                    raise Abandoned

            thread = asyncio.create_task(asyncio.to_thread(work, checkpoint))
            try:
                return await asyncio.shield(thread)
            except asyncio.CancelledError:
                abandoned.set()
                await asyncio.wait([thread])
                thread.exception()
                raise
