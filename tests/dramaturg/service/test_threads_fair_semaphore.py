"""Slots are divided equally between tenants, then by priority, limit and turn, and none is lost."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.service.threads import FairSemaphore, FairShare


class Holder:
    """Acquires slots and releases them on demand."""

    def __init__(self, semaphore: FairSemaphore) -> None:
        self.semaphore = semaphore
        self.held: list[str] = []
        self.release = asyncio.Event()

    async def hold(self, name: str, share: FairShare) -> None:
        async with self.semaphore.slot(share):
            self.held.append(name)
            await self.release.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_run_holds_no_more_than_its_limit() -> None:
    holder = Holder(FairSemaphore(10))
    share = holder.semaphore.open_share("a", 3)
    tasks = [asyncio.create_task(holder.hold("a", share)) for _ in range(5)]
    await settle()
    assert share.used == 3
    holder.semaphore.adjust(share, 4, 0)
    await settle()
    assert share.used == 4
    holder.release.set()
    await asyncio.gather(*tasks)
    assert share.used == 0
    holder.semaphore.close_share(share)


async def test_a_renewed_slot_goes_before_those_that_wait_and_keeps_to_a_lower_limit() -> None:
    semaphore = FairSemaphore(3)
    share = semaphore.open_share("a", 2)
    holder, renew = Holder(semaphore), asyncio.Event()

    async def hold(name: str) -> None:
        async with semaphore.slot(share) as slot:
            await renew.wait()
            await slot.renew()
            holder.held.append(name)
            await holder.release.wait()

    renewed = [asyncio.create_task(hold(name)) for name in ("a", "b")]
    waiting = asyncio.create_task(holder.hold("new", share))
    await settle()
    semaphore.adjust(share, 1, 0)
    renew.set()
    await settle()
    assert (holder.held, share.used) == (["b"], 1)
    renewed[0].cancel()  # It waits, and holds no slot that it could return.
    await settle()
    assert share.used == 1
    holder.release.set()
    await asyncio.gather(renewed[1], waiting)
    assert (holder.held, share.used) == (["b", "new"], 0)
    semaphore.close_share(share)


async def test_the_higher_priority_goes_first_and_equal_runs_take_turns() -> None:
    semaphore = FairSemaphore(1)
    order: list[str] = []
    first, second, urgent = (
        semaphore.open_share("a", 9),
        semaphore.open_share("a", 9),
        semaphore.open_share("a", 9, priority=5),
    )

    async def take(name: str, share: FairShare) -> None:
        async with semaphore.slot(share):
            order.append(name)
            await asyncio.sleep(0)

    async with semaphore.slot(first):
        tasks = [asyncio.create_task(take("a", first)) for _ in range(3)]
        tasks += [asyncio.create_task(take("b", second)) for _ in range(3)]
        tasks += [asyncio.create_task(take("u", urgent)) for _ in range(2)]
        await settle()
    await asyncio.gather(*tasks)
    assert order[:2] == ["u", "u"]
    assert sorted(order[2:4]) == sorted(order[4:6]) == sorted(order[6:8]) == ["a", "b"]


async def test_who_holds_fewer_comes_first() -> None:
    semaphore = FairSemaphore(4)
    many, few = semaphore.open_share("a", 9), semaphore.open_share("a", 9)
    holder = Holder(semaphore)
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
    """Tenants with runs that always want more slots, released in any order."""

    def __init__(self, total: int) -> None:
        self.semaphore = FairSemaphore(total)
        self.taken: list[tuple[str, FairShare, asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def join(self, tenant: str, runs: int, *, wants: int, priority: int = 0) -> list[FairShare]:
        """Opens shares of a tenant that want this many slots each."""
        shares = [self.semaphore.open_share(tenant, wants, priority) for _ in range(runs)]
        for share in shares:
            self.tasks += [asyncio.create_task(self._hold(tenant, share)) for _ in range(wants)]
        return shares

    def held(self, tenant: str) -> int:
        return sum(name == tenant for name, *_ in self.taken)

    async def release(self, index: int) -> None:
        """Releases one of the acquired slots; its holder wants another."""
        tenant, share, event = self.taken.pop(index)
        self.tasks.append(asyncio.create_task(self._hold(tenant, share)))
        event.set()
        await settle()

    async def leave(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _hold(self, tenant: str, share: FairShare) -> None:
        async with self.semaphore.slot(share):
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
        await crowd.release(0)
    for _ in range(40 * total):
        await crowd.release(draw.randrange(total))
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
        await crowd.release(next(i for i, (_, share, _) in enumerate(crowd.taken) if share is usual))
    assert (urgent.used, other.used) == (3, 3)
    await crowd.leave()


async def test_single_slots_go_to_tenants_in_turn() -> None:
    semaphore, order = FairSemaphore(1), list[str]()

    async def work(tenant: str) -> None:
        async with semaphore.single(tenant):
            order.append(tenant)
            await asyncio.sleep(0)

    async with semaphore.single("a"):
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
            await crowd.release(index % len(crowd.taken))
        await crowd.leave()
        assert not any(share.used for share in shares)

    asyncio.run(play())


@given(st.lists(st.sampled_from(["ask", "release", "cancel", "raise", "lower", "tick"]), max_size=60))
def test_whatever_is_cancelled_no_slot_is_lost(steps: list[str]) -> None:
    async def play() -> None:
        semaphore = FairSemaphore(3)
        share = semaphore.open_share("a", 2)
        holder = Holder(semaphore)
        tasks, ended = list[asyncio.Task[None]](), list[asyncio.Task[None]]()
        for step in steps:
            if step == "ask":
                tasks.append(asyncio.create_task(holder.hold("x", share)))
            elif step in {"release", "cancel"} and tasks:
                ended.append(tasks.pop(0 if step == "release" else -1))
                ended[-1].cancel()
            elif step in {"raise", "lower"}:
                semaphore.adjust(share, 3 if step == "raise" else 1, 0)
            else:  # all else happens within one tick
                await asyncio.sleep(0)
            assert 0 <= share.used <= 3
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, *ended, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        await settle()
        assert share.used == 0
        semaphore.adjust(share, 3, 0)
        async with semaphore.slot(share), semaphore.slot(share), semaphore.slot(share):
            assert share.used == 3

    asyncio.run(play())


async def test_a_tenant_holds_no_more_than_its_part_and_others_pass_it() -> None:
    semaphore = FairSemaphore(3, per_tenant=1)
    order: list[str] = []
    release = asyncio.Event()

    async def hold(tenant: str, name: str, priority: int = 0) -> None:
        async with semaphore.single(tenant, priority):
            order.append(name)
            await release.wait()

    tasks = [asyncio.create_task(hold("a", "first"))]
    await settle()
    tasks += [asyncio.create_task(hold("a", "later")), asyncio.create_task(hold("a", "urgent", 1))]
    await settle()
    tasks.append(asyncio.create_task(hold("b", "other")))
    await settle()
    assert order == ["first", "other"]
    release.set()
    await asyncio.gather(*tasks)
    assert order == ["first", "other", "urgent", "later"]
