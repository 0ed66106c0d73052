"""Looks up keys in batches: keys requested during a lookup form the next batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BatchedLookup(Generic[Key, Value]):
    """Looks keys up in batches, one batch at a time.

    Args:
        look_up: Looks up several keys and omits those that it does not find. All callers that wait for one of
            these keys receive its exceptions.
        largest: The maximum number of keys in a batch.
    """

    def __init__(
        self, look_up: Callable[[list[Key]], Awaitable[Mapping[Key, Value]]], *, largest: int = 200
    ) -> None:
        self._look_up = look_up
        self._largest = largest
        self._asked: dict[Key, asyncio.Future[Value | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def get(self, key: Key) -> Value | None:
        """Returns the value of a key, or None where the key is not found."""
        answer = self._asked.get(key)
        if answer is None:
            answer = self._asked[key] = asyncio.get_running_loop().create_future()
            if self._task is None:
                self._task = asyncio.create_task(self._work())
        # Shielded: cancelling one caller must not affect the others.
        return await asyncio.shield(answer)

    async def _work(self) -> None:
        try:
            while self._asked:
                batch = {key: self._asked.pop(key) for key in list(self._asked)[: self._largest]}
                await self._answer(batch)
        finally:
            self._task = None

    async def _answer(self, batch: Mapping[Key, asyncio.Future[Value | None]]) -> None:
        try:
            values = await self._look_up(list(batch))
        except BaseException as error:
            for answer in batch.values():
                _fail(answer, error)
            if not isinstance(error, Exception):
                raise
        else:
            for key, answer in batch.items():
                answer.set_result(values.get(key))

    async def close(self) -> None:
        """Stops the lookups and cancels waiting callers."""
        task = self._task
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for answer in self._asked.values():
            answer.cancel()


def _fail(answer: asyncio.Future[Value | None], error: BaseException) -> None:
    if isinstance(error, Exception):
        answer.set_exception(error)
        answer.exception()  # marks the exception as retrieved where all callers were cancelled
    else:
        answer.cancel()
