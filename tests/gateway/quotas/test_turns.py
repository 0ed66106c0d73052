"""The turns of the calls of tenants, beside calls of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dramaturg.testing import until
from gateway.quotas import turns
from gateway.quotas.turns import CallTurns


class Calls:
    """Calls that are in work until they are told to end."""

    def __init__(self, has_others: Callable[[str], bool], max_seconds: float = 1000.0) -> None:
        self.started: list[str] = []
        self._turns = CallTurns(has_others, max_seconds)
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, *names: str) -> None:
        """Begins calls; the first letter of a name is the tenant."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._work(name))

    def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()

    def cancel(self, name: str) -> None:
        self._tasks[name].cancel()

    async def started_are(self, *names: str) -> None:
        await until(lambda: len(self.started) >= len(names))
        for _ in range(20):  # turns of the event loop, in which a further call would start
            await asyncio.sleep(0)
        assert tuple(self.started) == names

    async def _work(self, name: str) -> None:
        await self._turns.take(name[0])
        self.started.append(name)
        await self._ends[name].wait()


def always(tenant: str) -> bool:
    del tenant
    return True


async def test_calls_of_a_tenant_alone_start_at_once() -> None:
    calls = Calls(lambda _: False)
    calls.begin("a1", "a2", "a3")
    await calls.started_are("a1", "a2", "a3")


async def test_a_burst_delays_its_own_tenant_alone() -> None:
    calls = Calls(always)
    calls.begin("a1", "a2", "a3", "b1")
    await calls.started_are("a1", "b1")
    calls.end("b1")
    await until(lambda: not calls._turns._lines.get("b"))
    calls.begin("b2")
    await calls.started_are("a1", "b1", "b2")
    calls.end("a1")
    await calls.started_are("a1", "b1", "b2", "a2")
    calls.end("a2")
    await calls.started_are("a1", "b1", "b2", "a2", "a3")


async def test_a_cancelled_call_keeps_nobody_waiting() -> None:
    calls = Calls(always)
    calls.begin("a1", "a2", "a3", "a4")
    await calls.started_are("a1")
    calls.cancel("a2")
    calls.cancel("a1")
    await calls.started_are("a1", "a3")
    calls.cancel("a4")
    calls.end("a3")
    await until(lambda: not calls._turns._lines)
    calls.begin("a5")
    await calls.started_are("a1", "a3", "a5")


async def test_a_long_call_delays_the_next_one_for_a_bounded_time() -> None:
    calls = Calls(always, max_seconds=0.01)
    calls.begin("a1", "a2", "a3")
    await calls.started_are("a1", "a2", "a3")


async def test_waiting_calls_start_when_the_others_have_left() -> None:
    others = True
    calls = Calls(lambda _: others)
    calls.begin("a1", "a2", "a3")
    await calls.started_are("a1")
    others = False
    calls.end("a1")
    await calls.started_are("a1", "a2", "a3")


async def test_a_limited_number_of_calls_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MAX_WAITING", 1)
    calls = Calls(always)
    calls.begin("a1", "a2", "a3")
    await calls.started_are("a1", "a3")
