"""Slots are shared by limit, priority and turns, and none is lost."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from gateway.runs.engine.slots import Share, Slots


class Holder:
    """Takes slots one after another and lets them go on demand."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.held: list[str] = []
        self.release = asyncio.Event()

    async def hold(self, name: str, share: Share) -> None:
        async with self.slots.slot(share):
            self.held.append(name)
            await self.release.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_run_holds_no_more_than_its_limit() -> None:
    holder = Holder(Slots(10))
    share = holder.slots.open_share(3)
    tasks = [asyncio.create_task(holder.hold("a", share)) for _ in range(5)]
    await settle()
    assert share.used == 3
    holder.slots.adjust(share, 4, 0)
    await settle()
    assert share.used == 4
    holder.release.set()
    await asyncio.gather(*tasks)
    assert share.used == 0
    holder.slots.close_share(share)


async def test_the_higher_priority_goes_first_and_equal_runs_take_turns() -> None:
    slots = Slots(1)
    order: list[str] = []
    first, second, urgent = slots.open_share(9), slots.open_share(9), slots.open_share(9, priority=5)

    async def take(name: str, share: Share) -> None:
        async with slots.slot(share):
            order.append(name)
            await asyncio.sleep(0)

    async with slots.slot(first):
        tasks = [asyncio.create_task(take("a", first)) for _ in range(3)]
        tasks += [asyncio.create_task(take("b", second)) for _ in range(3)]
        tasks += [asyncio.create_task(take("u", urgent)) for _ in range(2)]
        await settle()
    await asyncio.gather(*tasks)
    assert order[:2] == ["u", "u"]
    assert sorted(order[2:4]) == sorted(order[4:6]) == sorted(order[6:8]) == ["a", "b"]


async def test_who_holds_fewer_comes_first() -> None:
    slots = Slots(4)
    many, few = slots.open_share(9), slots.open_share(9)
    holder = Holder(slots)
    tasks = [asyncio.create_task(holder.hold("many", many)) for _ in range(9)]
    await settle()
    tasks += [asyncio.create_task(holder.hold("few", few)) for _ in range(2)]
    await settle()
    tasks[0].cancel()
    await settle()
    assert (many.used, few.used) == (3, 1)
    holder.release.set()
    await asyncio.gather(*tasks, return_exceptions=True)


@given(st.lists(st.sampled_from(["ask", "release", "cancel", "raise", "lower"]), max_size=60))
def test_whatever_is_cancelled_no_slot_is_lost(steps: list[str]) -> None:
    async def play() -> None:
        slots = Slots(3)
        share = slots.open_share(2)
        holder = Holder(slots)
        tasks: list[asyncio.Task[None]] = []
        for step in steps:
            if step == "ask":
                tasks.append(asyncio.create_task(holder.hold("x", share)))
            elif step in {"release", "cancel"} and tasks:
                tasks.pop(0 if step == "release" else -1).cancel()
            elif step in {"raise", "lower"}:
                slots.adjust(share, 3 if step == "raise" else 1, 0)
            await asyncio.sleep(0)
            assert 0 <= share.used <= 3
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await settle()
        assert share.used == 0
        slots.adjust(share, 3, 0)
        async with slots.slot(share), slots.slot(share), slots.slot(share):
            assert share.used == 3

    asyncio.run(play())
