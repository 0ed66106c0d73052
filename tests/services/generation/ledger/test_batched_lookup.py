"""Questions that are asked together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from dramaturg.testing import until
from services.generation.ledger.batched_lookup import BatchedLookup


class Store:
    """Doubles even numbers, knows no odd ones, and answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.go = asyncio.Event()
        self.fault: Exception | None = None

    async def look_up(self, keys: list[int]) -> Mapping[int, int]:
        self.asked.append(keys)
        await self.go.wait()
        if self.fault is not None:
            raise self.fault
        return {key: 2 * key for key in keys if key % 2 == 0}


async def test_what_is_asked_meanwhile_is_asked_together_and_once() -> None:
    store = Store()
    batches = BatchedLookup(store.look_up, largest=3)
    first = asyncio.create_task(batches.get(0))
    await until(lambda: bool(store.asked))
    rest = [asyncio.create_task(batches.get(key)) for key in (1, 2, 2, 3, 4)]
    await asyncio.sleep(0)
    store.go.set()
    assert await first == 0
    assert await asyncio.gather(*rest) == [None, 4, 4, None, 8]
    assert store.asked == [[0], [1, 2, 3], [4]]
    await batches.close()


async def test_one_who_leaves_takes_the_answer_from_nobody() -> None:
    store = Store()
    batches = BatchedLookup(store.look_up)
    leaver, stayer = asyncio.create_task(batches.get(2)), asyncio.create_task(batches.get(2))
    await asyncio.sleep(0)
    leaver.cancel()
    store.go.set()
    assert await stayer == 4
    await batches.close()


async def test_a_failure_is_everyones_and_of_one_batch_alone() -> None:
    store = Store()
    batches = BatchedLookup(store.look_up)
    store.fault = RuntimeError("broken")
    store.go.set()
    for one in await asyncio.gather(batches.get(1), batches.get(2), return_exceptions=True):
        assert isinstance(one, RuntimeError)
    store.fault = None
    assert await batches.get(2) == 4
    await batches.close()


async def test_closing_leaves_nobody_waiting() -> None:
    store = Store()
    batches = BatchedLookup(store.look_up, largest=1)
    waiting = [asyncio.create_task(batches.get(key)) for key in range(3)]
    await until(lambda: bool(store.asked))
    await batches.close()
    for one in waiting:
        with pytest.raises(asyncio.CancelledError):
            await one
