"""Calls to a judge are shared by tenants: nobody waits for the whole line of another."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.service.threads import TenantTurns
from dramaturg.testing import until
from gateway.judges import registry
from gateway.runs.settings import RunsSettings
from tests.support.auth import holder
from tests.support.gateway import Fake, agents, all_pass, scripts_request
from tests.support.tenants import gateway_of_tenants

TENANTS = "abc"


class Calls:
    """Calls that take turns, which end when they are told to. Knows in which order they got in."""

    def __init__(self, limit: int) -> None:
        self.turns = TenantTurns(limit, limit)
        self.waiting: list[tuple[str, int]] = []
        self.inside: list[tuple[str, int]] = []
        self.tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._ends: dict[tuple[str, int], asyncio.Event] = {}
        self._numbers = count()

    def ask(self, tenant: str) -> tuple[str, int]:
        """Lets a tenant make a further call."""
        call = tenant, next(self._numbers)
        self.waiting.append(call)
        self._ends[call] = asyncio.Event()
        self.tasks[call] = asyncio.create_task(self._make(call))
        return call

    def end(self, call: tuple[str, int]) -> None:
        """Ends a call."""
        self._ends[call].set()

    def cancel(self, call: tuple[str, int]) -> None:
        """Cancels a call, wherever it is."""
        if call in self.waiting:
            self.waiting.remove(call)
        self.tasks[call].cancel()

    def cancelled(self, call: tuple[str, int]) -> bool:
        """Whether a call was cancelled."""
        return self.tasks[call].cancelled()

    async def settle(self) -> None:
        """Lets everything happen that can."""
        for _ in range(6):
            await asyncio.sleep(0)

    async def _make(self, call: tuple[str, int]) -> None:
        with await self.turns.take(call[0]):
            if call in self.waiting:
                self.waiting.remove(call)
            self.inside.append(call)
            try:
                await self._ends[call].wait()
            finally:
                self.inside.remove(call)


@given(
    limit=st.integers(1, 4),
    steps=st.lists(
        st.tuples(st.sampled_from(["ask", "end", "cancel", "settle"]), st.integers(0, 11), st.integers(0, 4)),
        max_size=60,
    ),
)
def test_no_more_than_the_limit_are_inside_nobody_is_forgotten_and_waits_are_bounded(
    limit: int, steps: list[tuple[str, int, int]]
) -> None:
    async def play() -> None:
        calls = Calls(limit)
        overtaken: Counter[tuple[str, int]] = Counter()
        """By a tenant's first waiting call while it had none inside: how many of others got in before."""
        first = dict[str, tuple[str, int]]()
        held = set[str]()
        waiting = list[tuple[str, int]]()

        async def settle() -> None:
            """Lets everything happen, and looks at what happened since the last time."""
            await calls.settle()
            assert len(calls.inside) <= limit
            assert len(calls.inside) == limit or not calls.waiting
            entered = [call for call in waiting if call not in calls.waiting and not calls.cancelled(call)]
            for tenant in TENANTS:
                # A tenant's own calls get in as they came.
                own = [call for call in waiting if call[0] == tenant and not calls.cancelled(call)]
                assert own == sorted(own, key=lambda call: (call not in entered, call))
                if tenant in first and first[tenant] in calls.waiting and tenant not in held:
                    overtaken[first[tenant]] += len(entered)
                    assert overtaken[first[tenant]] < len(TENANTS)
            waiting[:] = calls.waiting
            first.clear()
            first.update((call[0], call) for call in reversed(waiting))
            held.clear()
            held.update(tenant for tenant, _ in calls.inside)

        for step, pick, times in steps:
            if step == "ask":
                for _ in range(1 + times):
                    calls.ask(TENANTS[pick % len(TENANTS)])
            elif step == "end" and calls.inside:
                calls.end(calls.inside[pick % len(calls.inside)])
                for _ in range(times):
                    await asyncio.sleep(0)
            elif step == "cancel" and calls.tasks:
                # Wherever it is, also one that was let in and does not know it yet.
                calls.cancel(list(calls.tasks)[pick % len(calls.tasks)])
            else:
                await settle()
        await settle()
        while calls.inside:
            calls.end(calls.inside[0])
            await settle()
        assert not calls.waiting
        await asyncio.gather(*calls.tasks.values(), return_exceptions=True)
        # As at first: all places are free, for anybody.
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            together = asyncio.Barrier(limit)

            async def enter() -> None:
                with await calls.turns.take("z"):
                    await together.wait()

            for _ in range(limit):
                group.create_task(enter())

    asyncio.run(play())


async def test_who_has_nothing_under_way_comes_next_however_many_wait() -> None:
    calls = Calls(2)
    for _ in range(1000):
        calls.ask("a")
    await calls.settle()
    newcomers = {calls.ask("b"), calls.ask("c")}
    # Each waits for one turn of the other and one of the many at most.
    for _ in range(3):
        calls.end(next(call for call in calls.inside if call[0] == "a"))
        await calls.settle()
    assert set(calls.inside) == newcomers
    for task in calls.tasks.values():
        task.cancel()
    await asyncio.gather(*calls.tasks.values(), return_exceptions=True)


async def test_what_is_cancelled_in_the_moment_of_its_turn_passes_it_on() -> None:
    calls = Calls(1)
    first, second, third = calls.ask("a"), calls.ask("a"), calls.ask("b")
    await calls.settle()
    calls.end(first)
    for _ in range(6):
        if first in calls.inside:
            await asyncio.sleep(0)
    # It has the place and does not know it yet.
    assert not calls.inside
    calls.cancel(second)
    await calls.settle()
    assert calls.inside == [third]
    calls.end(third)
    await asyncio.gather(*calls.tasks.values(), return_exceptions=True)


MANY, ONE = holder("many", "evaluator"), holder("one", "evaluator")


class SlowCritic:
    """Answers when it is let; knows for whose tasks it was asked, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = asyncio.Semaphore(0)

    async def __call__(self, request: Any) -> Any:
        if request.candidate.id == "c0":  # once for each call
            self.asked.append(request.task.topic)
            await self.answers.acquire()
        return all_pass("critic")


@pytest.mark.parametrize("places", [1, 3])
async def test_a_tenant_that_floods_a_slow_judge_holds_up_no_other(
    places: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    critic, executed, turns = SlowCritic(), Counter[str](), list[TenantTurns]()

    class KnownTurns(TenantTurns):
        def __init__(self, size: int, per_tenant: int) -> None:
            super().__init__(size, per_tenant)
            turns.append(self)

    monkeypatch.setattr(registry, "TenantTurns", KnownTurns)

    def stand_in_line() -> bool:
        return any(each._calls["many"] > places and each._calls["one"] == 4 for each in turns)

    async def execute(request: Any) -> Any:
        executed[request.task.topic] += request.candidate.id == "c0"
        return all_pass("execute")

    async def evaluate(channel: Any, topic: str, tasks: int) -> None:
        await asyncio.gather(*(evaluate_one(channel, topic) for _ in range(tasks)))

    async def evaluate_one(channel: Any, topic: str) -> None:
        request = scripts_request(3)
        request.task.topic = topic
        results = [event async for event in EvaluationServiceStub(channel).EvaluateScripts(request)]
        assert len(results[-1].result.candidates) == 3

    fakes = agents(Fake("critic", critic), Fake("execute", execute))
    runs = RunsSettings(enabled=False)
    async with (
        gateway_of_tenants(
            tmp_path, (MANY, ONE), fakes, runs, calls_per_judge=places, judge_timeout_seconds=120
        ) as (many, one),
        asyncio.timeout(60),
        asyncio.TaskGroup() as group,
    ):
        flood = [group.create_task(evaluate(many, "many", 20)) for _ in range(5)]
        await until(lambda: executed["many"] == 100 and len(critic.asked) == places, 30)
        wanted = group.create_task(evaluate(one, "one", 4))
        await until(stand_in_line, 30)
        while not wanted.done():
            asked = len(critic.asked)
            critic.answers.release()
            await until(lambda asked=asked: wanted.done() or len(critic.asked) > asked, 30)  # type: ignore[misc]
        # Two tenants take turns: four calls of the one cost four of the other, besides those under way.
        assert critic.asked.count("one") == 4
        assert critic.asked.count("many") <= 2 * places + 4
        for _ in range(100):
            critic.answers.release()
        await asyncio.gather(*flood)
