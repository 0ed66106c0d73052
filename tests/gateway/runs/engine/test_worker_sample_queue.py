"""Samples are taken in small groups, each handed out once, and those that are not done are known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.runs.engine.worker import SampleQueue
from gateway.runs.records import SampleWork


def work(index: int) -> SampleWork:
    return SampleWork(index=index, line=index + 1, sample_id="", tags={}, request=b"", crashes=0)


async def test_it_takes_no_more_than_asked_and_gives_each_once() -> None:
    groups: list[list[int]] = []

    async def take(indices: Sequence[int]) -> Sequence[SampleWork]:
        groups.append(list(indices))
        await asyncio.sleep(0)
        return [work(index) for index in indices if index != 3]

    queue = SampleQueue(range(7), take)
    given = await asyncio.gather(*(queue.next(2) for _ in range(9)))
    assert [one.index for one in given if one is not None] == [0, 1, 2, 4, 5, 6]
    assert given[6:] == [None, None, None]
    assert groups == [[0, 1], [2, 3], [4, 5], [6]]
    assert queue.left == {0, 1, 2, 4, 5, 6}


async def test_what_was_being_taken_when_it_was_cut_is_known() -> None:
    async def take(indices: Sequence[int]) -> Sequence[SampleWork]:
        await asyncio.Event().wait()
        return []

    queue = SampleQueue(range(5), take)
    task = asyncio.create_task(queue.next(3))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert queue.left == {0, 1, 2}
