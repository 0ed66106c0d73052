"""Single flight: equal work that is asked for at the same time is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from services.generation.deadlines import Deadline, latest, timeout
from services.generation.errors import DeadlinePassedError

T = TypeVar("T")
_GRACE = 0.02  # seconds in which the work itself may say why it failed, before a waiter gives up on it


class _SharedWork(Generic[T]):
    """Work in progress, and its waiters. As a deadline: the last of the waiters'."""

    def __init__(self) -> None:
        self.waiters: dict[asyncio.Future[T], Deadline] = {}
        self.failure: Exception | None = None
        self.task: asyncio.Task[T]

    def remaining(self) -> float:
        return latest(self.waiters.values())

    def land(self) -> None:
        """Gives all waiters the outcome of the work."""
        error = None if self.task.cancelled() else self.task.exception()
        for waiter in self.waiters:
            if waiter.done():
                continue
            if self.task.cancelled():
                waiter.cancel()
            elif error is not None:
                _fail(waiter, error)
            else:
                waiter.set_result(self.task.result())


class SingleFlight(Generic[T]):
    """Work by key. It continues while any caller waits for it.

    A waiter that is cancelled, or whose deadline passes, leaves the others the work that was begun; with
    the last waiter the work is cancelled. An outcome is given to those who wait for it and then forgotten.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, _SharedWork[T]] = {}

    async def join(
        self, key: str, deadline: Deadline, work: Callable[[Deadline], Coroutine[Any, Any, T]]
    ) -> tuple[T, bool]:
        """Waits for the work of ``key``, which is begun if it is not in progress.

        Returns:
            The outcome, and whether it was begun for this caller.

        Raises:
            DeadlinePassedError: The caller's deadline passed before the work ended or failed once.
            Exception: The work's error, or at the caller's deadline its latest failure.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[T] = loop.create_future()
        flight = self._under_way.get(key)
        begun = flight is None
        if flight is None:
            flight = self._begin(key, waiter, deadline, work)
        else:
            flight.waiters[waiter] = deadline
        limit = timeout(deadline)
        timer = None if limit is None else loop.call_later(limit + _GRACE, _give_up, waiter, flight)
        try:
            return await waiter, begun
        finally:
            if timer is not None:
                timer.cancel()
            self._leave(key, flight, waiter)

    def _begin(
        self,
        key: str,
        waiter: asyncio.Future[T],
        deadline: Deadline,
        work: Callable[[Deadline], Coroutine[Any, Any, T]],
    ) -> _SharedWork[T]:
        flight = self._under_way[key] = _SharedWork[T]()
        flight.waiters[waiter] = deadline

        def landed(task: asyncio.Task[T]) -> None:
            del task
            self._forget(key, flight)
            flight.land()

        flight.task = asyncio.create_task(work(flight))
        flight.task.add_done_callback(landed)
        return flight

    def _leave(self, key: str, flight: _SharedWork[T], waiter: asyncio.Future[T]) -> None:
        del flight.waiters[waiter]
        if not flight.waiters and not flight.task.done():
            self._forget(key, flight)
            flight.task.cancel()

    def _forget(self, key: str, flight: _SharedWork[T]) -> None:
        if self._under_way.get(key) is flight:
            del self._under_way[key]


def _give_up(waiter: asyncio.Future[T], work: _SharedWork[T]) -> None:
    if not waiter.done():
        _fail(waiter, work.failure or DeadlinePassedError("no answer before the deadline"))


def _fail(waiter: asyncio.Future[T], error: BaseException) -> None:
    waiter.set_exception(error)
    waiter.exception()  # seen, also where the waiter leaves in the same moment
