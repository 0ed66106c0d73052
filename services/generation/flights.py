"""Single flight: equal work that is asked for at the same time is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from services.generation.deadlines import Deadline, latest, timeout
from services.generation.errors import DeadlinePassedError

T = TypeVar("T")
_GRACE = 0.02  # seconds in which the work itself may say why it failed, before a waiter gives up on it


class _Flight(Generic[T]):
    """Work under way, and who waits for it. As a deadline: the last of the waiters'."""

    def __init__(self) -> None:
        self.waiters: list[Deadline] = []
        self.task: asyncio.Task[T]

    def remaining(self) -> float:
        return latest(self.waiters)


class Flights(Generic[T]):
    """Work by key. It goes on as long as anyone waits for it, whoever asked first.

    A waiter that is cancelled, or whose deadline passes, leaves the others the work that was begun; with
    the last waiter the work is cancelled. An outcome is given to those who wait for it and then forgotten.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, _Flight[T]] = {}

    async def join(
        self, key: str, deadline: Deadline, work: Callable[[Deadline], Awaitable[T]]
    ) -> tuple[T, bool]:
        """Waits for the work of ``key``, which is begun if it is not under way.

        Returns:
            The outcome, and whether it was begun for this caller.

        Raises:
            DeadlinePassedError: the caller's deadline passed before the work ended.
            Exception: what the work raised.
        """
        flight = self._under_way.get(key)
        begun = flight is None
        if flight is None:
            flight = self._begin(key, deadline, work)
        else:
            flight.waiters.append(deadline)
        limit = timeout(deadline)
        try:
            async with asyncio.timeout(None if limit is None else limit + _GRACE):
                return await asyncio.shield(flight.task), begun
        except TimeoutError:
            raise DeadlinePassedError("no answer before the deadline") from None
        finally:
            self._leave(key, flight, deadline)

    def _begin(self, key: str, deadline: Deadline, work: Callable[[Deadline], Awaitable[T]]) -> _Flight[T]:
        flight = _Flight[T]()
        flight.waiters.append(deadline)

        async def fly() -> T:
            return await work(flight)

        def landed(task: asyncio.Task[T]) -> None:
            if self._under_way.get(key) is flight:
                del self._under_way[key]
            if not task.cancelled():
                task.exception()  # seen, also where every waiter has left

        flight.task = asyncio.create_task(fly())
        flight.task.add_done_callback(landed)
        self._under_way[key] = flight
        return flight

    def _leave(self, key: str, flight: _Flight[T], deadline: Deadline) -> None:
        flight.waiters.remove(deadline)
        if not flight.waiters and not flight.task.done():
            if self._under_way.get(key) is flight:
                del self._under_way[key]
            flight.task.cancel()
