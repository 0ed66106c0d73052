"""Runs what is long to compute off the event loop, one computation at a time."""

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
    """One thread's worth of work: more at once would take more memory and be no sooner done."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, work: Callable[[Checkpoint], T]) -> T:
        """Runs ``work`` in a thread; it calls the checkpoint that it is given between its parts.

        Where this call is cancelled, the work ends at its next checkpoint, and the next one begins then.
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
