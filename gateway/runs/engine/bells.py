"""Tells within this process that something of a run may have changed, so that nobody waits to look."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Bell:
    """One listener's: it wakes the one who waits, or who waits next."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wakes the listener."""
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        """Waits for the bell, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            pass
        self._rung.clear()


class Bells:
    """The bells of this process, by run."""

    def __init__(self) -> None:
        self._bells: dict[str, list[Bell]] = {}
        self._watching: dict[str, list[Bell]] = {}
        """Those of listeners who want to hear of progress too."""

    @contextmanager
    def listening(self, run_id: str, *, progress: bool = False) -> Iterator[Bell]:
        """A bell for a run within a ``with`` block.

        Args:
            run_id: The run.
            progress: Whether it rings for samples that are done, too: that is often.
        """
        bell = Bell()
        bells = self._watching if progress else self._bells
        listeners = bells.setdefault(run_id, [])
        listeners.append(bell)
        try:
            yield bell
        finally:
            listeners.remove(bell)
            if not listeners:
                del bells[run_id]

    def ring(self, run_id: str) -> None:
        """Wakes everybody who listens for a run."""
        for bell in self._bells.get(run_id, ()):
            bell.ring()
        self.ring_progress(run_id)

    def ring_progress(self, run_id: str) -> None:
        """Wakes those who want to hear of a run's progress."""
        for bell in self._watching.get(run_id, ()):
            bell.ring()
