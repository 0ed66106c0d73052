"""Slots are shared equally by tenants, then by priority, limit and turns, and none is lost."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.slots import Share, Slots


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
    share = holder.slots.open_share("a", 3)
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
    first, second, urgent = (
        slots.open_share("a", 9),
        slots.open_share("a", 9),
        slots.open_share("a", 9, priority=5),
    )

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
    many, few = slots.open_share("a", 9), slots.open_share("a", 9)
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


class Crowd:
    """Tenants with runs that always want more, and slots that are given back in any order."""

    def __init__(self, total: int) -> None:
        self.slots = Slots(total)
        self.taken: list[tuple[str, Share, asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def join(self, tenant: str, runs: int, *, wants: int, priority: int = 0) -> list[Share]:
        """Lets runs of a tenant want so many slots each."""
        shares = [self.slots.open_share(tenant, wants, priority) for _ in range(runs)]
        for share in shares:
            self.tasks += [asyncio.create_task(self._hold(tenant, share)) for _ in range(wants)]
        return shares

    def held(self, tenant: str) -> int:
        """The slots that a tenant holds."""
        return sum(name == tenant for name, *_ in self.taken)

    async def give_back(self, index: int) -> None:
        """Gives back one of the slots taken; whoever held it wants another."""
        tenant, share, event = self.taken.pop(index)
        self.tasks.append(asyncio.create_task(self._hold(tenant, share)))
        event.set()
        await settle()

    async def leave(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _hold(self, tenant: str, share: Share) -> None:
        async with self.slots.slot(share):
            event = asyncio.Event()
            self.taken.append((tenant, share, event))
            await event.wait()


@pytest.mark.parametrize("total", [1, 3, 8])
async def test_a_tenant_gets_no_more_for_many_runs_or_urgent_ones(total: int) -> None:
    crowd, draw, turns = Crowd(total), random.Random(total), {"many": 0, "one": 0}
    crowd.join("many", 10, wants=total, priority=100)
    await settle()
    crowd.join("one", 1, wants=total)
    for _ in range(total):  # until what was taken before the other came was given back
        await crowd.give_back(0)
    for _ in range(40 * total):
        await crowd.give_back(draw.randrange(total))
        for tenant in turns:
            turns[tenant] += crowd.held(tenant)
        assert abs(crowd.held("many") - crowd.held("one")) <= 1
    assert turns["one"] / sum(turns.values()) == pytest.approx(0.5, abs=0.1)
    await crowd.leave()


async def test_what_one_tenant_does_not_want_is_the_others() -> None:
    crowd = Crowd(8)
    crowd.join("few", 1, wants=2)
    crowd.join("many", 3, wants=8)
    await settle()
    assert (crowd.held("few"), crowd.held("many")) == (2, 6)
    await crowd.leave()


async def test_priority_orders_the_runs_of_one_tenant() -> None:
    crowd = Crowd(6)
    (usual,), (urgent,) = crowd.join("a", 1, wants=6), crowd.join("a", 1, wants=6, priority=1)
    (other,) = crowd.join("b", 1, wants=6, priority=-100)
    await settle()
    while usual.used:
        await crowd.give_back(next(i for i, (_, share, _) in enumerate(crowd.taken) if share is usual))
    assert (urgent.used, other.used) == (3, 3)
    await crowd.leave()


async def test_single_slots_go_to_tenants_in_turn() -> None:
    slots, order = Slots(1), list[str]()

    async def work(tenant: str) -> None:
        async with slots.single(tenant):
            order.append(tenant)
            await asyncio.sleep(0)

    async with slots.single("a"):
        tasks = [asyncio.create_task(work(tenant)) for tenant in "aaaabb"]
        await settle()
    await asyncio.gather(*tasks)
    assert order in (list("ababaa"), list("babaaa"))


@given(
    total=st.integers(1, 6),
    runs=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.integers(-1, 1)), min_size=1, max_size=6
    ),
    released=st.lists(st.integers(0, 5), max_size=20),
)
def test_no_slot_is_idle_that_somebody_wants(
    total: int, runs: list[tuple[str, int, int]], released: list[int]
) -> None:
    async def play() -> None:
        crowd = Crowd(total)
        shares = [
            share
            for tenant, wants, priority in runs
            for share in crowd.join(tenant, 1, wants=wants, priority=priority)
        ]
        await settle()
        wanted = sum(share.limit for share in shares)
        for index in released:
            assert sum(share.used for share in shares) == len(crowd.taken) == min(total, wanted)
            assert all(share.used <= share.limit for share in shares)
            await crowd.give_back(index % len(crowd.taken))
        await crowd.leave()
        assert not any(share.used for share in shares)

    asyncio.run(play())


@given(st.lists(st.sampled_from(["ask", "release", "cancel", "raise", "lower"]), max_size=60))
def test_whatever_is_cancelled_no_slot_is_lost(steps: list[str]) -> None:
    async def play() -> None:
        slots = Slots(3)
        share = slots.open_share("a", 2)
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
