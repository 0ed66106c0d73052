from __future__ import annotations

import asyncio

import pytest

from dramaturg.service.threads import gather_all


async def test_the_first_error_ends_the_others_and_is_raised() -> None:
    ended = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("a")

    with pytest.raises(KeyError, match="a"):
        await gather_all([wait(), fail()])
    assert ended.is_set()
    with pytest.raises(KeyError):
        await gather_all([fail()])


async def test_results_are_in_the_order_of_the_coroutines() -> None:
    second = asyncio.Event()

    async def first() -> int:
        await second.wait()
        return 1

    async def other() -> int:
        second.set()
        return 2

    assert await gather_all([first(), other()]) == [1, 2]
    assert await gather_all([]) == []
