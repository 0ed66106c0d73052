"""Writes what came of samples in groups, off the event loop, and loses none while the process lives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from gateway.runs.records import SampleOutcome

GROUP_SECONDS = 0.5
"""The longest that an outcome waits for others."""
GROUP_SIZE = 32
"""With so many a group is written at once."""
MOST_WAITING = 256
"""With so many unwritten, whoever brings more waits: the store is slower than the samples."""

Write = Callable[[Sequence[SampleOutcome]], Awaitable[None]]


class OutcomeWriter:
    """Writes outcomes of one run.

    Args:
        write: Writes a group in one transaction, however long that takes.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: list[SampleOutcome] = []
        self._put = 0
        self._written = 0
        self._changed = asyncio.Condition()
        self._urgent = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._broken: Exception | None = None

    async def put(self, outcome: SampleOutcome) -> None:
        """Has an outcome written soon."""
        self._waiting.append(outcome)
        self._put += 1
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        if len(self._waiting) >= GROUP_SIZE:
            self._urgent.set()
        if self._broken is not None or len(self._waiting) >= MOST_WAITING:
            await self._wait_until(lambda: len(self._waiting) < MOST_WAITING)

    async def flush(self) -> None:
        """Waits until everything is written that was put so far."""
        put = self._put
        if self._written < put:
            self._urgent.set()
        await self._wait_until(lambda: self._written >= put)

    async def _wait_until(self, done: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._broken is not None or done())
        if self._broken is not None:
            raise self._broken

    async def _work(self) -> None:
        try:
            while self._waiting:
                with suppress(TimeoutError):
                    async with asyncio.timeout(GROUP_SECONDS):
                        await self._urgent.wait()
                self._urgent.clear()
                group = tuple(self._waiting)
                await self._write(group)
                async with self._changed:
                    # Only now: until they are written they count as waiting.
                    del self._waiting[: len(group)]
                    self._written += len(group)
                    self._changed.notify_all()
        except Exception as error:
            # Whoever waits must hear of it.
            async with self._changed:
                self._broken = error
                self._changed.notify_all()
        finally:
            self._task = None
