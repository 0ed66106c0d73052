"""Notifies waiters in this process of changes to runs, so that they need not wait for their next poll."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class ChangeListener:
    """Wakes one waiter. A notification that comes before ``wait`` is not lost."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Wakes the waiter, now or at its next ``wait``."""
        self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Waits for a notification, at most ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()


class ChangeNotifier:
    """Notifies on run changes."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[ChangeListener]] = {}
        self._progress_listeners: dict[str, list[ChangeListener]] = {}

    @contextmanager
    def listen(self, run_id: str, *, progress: bool = False) -> Iterator[ChangeListener]:
        """Yields a listener for a run.

        Args:
            run_id: The run.
            progress: Whether completed samples notify too, which is frequent.
        """
        listener = ChangeListener()
        registry = self._progress_listeners if progress else self._listeners
        listeners = registry.setdefault(run_id, [])
        listeners.append(listener)
        try:
            yield listener
        finally:
            listeners.remove(listener)
            if not listeners:
                del registry[run_id]

    def notify(self, run_id: str) -> None:
        """Notifies all listeners of a run."""
        for listener in self._listeners.get(run_id, ()):
            listener.notify()
        self.notify_progress(run_id)

    def notify_progress(self, run_id: str) -> None:
        """Notifies the listeners of a run's progress."""
        for listener in self._progress_listeners.get(run_id, ()):
            listener.notify()
