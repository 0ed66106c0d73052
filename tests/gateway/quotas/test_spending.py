"""What evaluations cost reaches the store through outages and stops, once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dramaturg.database import StoreError
from dramaturg.service.errors import ServiceError
from dramaturg.testing import until
from gateway.quotas import spending
from gateway.quotas.spending import DailySpending
from gateway.runs.records import Spending
from gateway.runs.store import RunStore, open_store
from tests.support.runs import lost_acknowledgements


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    opened = open_store(f"sqlite:///{tmp_path}/runs.sqlite3")
    yield opened
    opened.close()


def usage(tokens: int) -> Spending:
    return Spending(tokens)


async def test_amounts_are_written_and_read_by_another_gateway(store: RunStore) -> None:
    one, other = DailySpending(), DailySpending()
    async with one.persisted(store), other.persisted(store):
        for _ in range(10):
            one.add("a", usage(3))
        assert (await one.today("a", fresh=True)).tokens >= 30
        await until(lambda: store.spending.today("a").tokens == 30)
        assert await other.today("a") == Spending(30, 0)
        assert await other.today("b") == Spending()


async def test_an_outage_of_the_store_omits_nothing(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spending, "_RETRY_SECONDS", 0.01)
    tries = 0

    def fail(*_: Any) -> Any:
        nonlocal tries
        tries += 1
        raise StoreError("the disk is full")

    spent = DailySpending()
    async with spent.persisted(store):
        assert await spent.today("a") == Spending()
        monkeypatch.setattr(store.spending, "add", fail)
        spent.add("a", usage(5))
        await until(lambda: tries > 2)
        assert (await spent.today("a", fresh=True)).tokens == 5
        monkeypatch.setattr(store.spending, "today", fail)
        with pytest.raises(ServiceError, match="unavailable"):
            await spent.today("a", fresh=True)
        monkeypatch.undo()
        await until(lambda: store.spending.today("a").tokens == 5)
        assert (await spent.today("a", fresh=True)).tokens == 5


async def test_a_write_of_unknown_outcome_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spending, "_RETRY_SECONDS", 0.01)
    store = open_store(f"sqlite:///{tmp_path}/runs.sqlite3", retry_seconds=0)
    spent = DailySpending()
    async with spent.persisted(store):
        with lost_acknowledgements():
            spent.add("a", usage(5))
            await until(lambda: "a" in spent._failed)
            spent.add("a", usage(2))
            await until(lambda: not spent._unwritten)
        assert (await spent.today("a", fresh=True)).tokens == 7
    store.close()


async def test_an_amount_written_during_a_read_is_not_missed(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, written = threading.Event(), threading.Event()
    read = store.spending.today

    def read_early(tenant: str) -> Spending:
        found = read(tenant)
        reading.set()
        assert written.wait(20)
        return found

    spent = DailySpending()
    async with spent.persisted(store):
        monkeypatch.setattr(store.spending, "today", read_early)
        asked = asyncio.create_task(spent.today("a"))
        await until(reading.is_set)
        spent.add("a", usage(7))
        # The write waits for the read, and is not missed by the one after it.
        written.set()
        await asked
        assert (await spent.today("a")).tokens == 7
        await until(lambda: read("a").tokens == 7)
        assert (await spent.today("a")).tokens == 7


async def test_a_stop_writes_what_is_left_once(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, released = threading.Event(), threading.Event()
    write = store.spending.add

    def write_slowly(*given: Any) -> None:
        begun.set()
        assert released.wait(20)
        write(*given)

    monkeypatch.setattr(store.spending, "add", write_slowly)
    spent = DailySpending()
    async with asyncio.timeout(20):
        async with spent.persisted(store):
            spent.add("a", usage(2))
            await until(begun.is_set)
            spent.add("a", usage(3))
            # The stop cancels the writer while its first write is in progress.
            asyncio.get_running_loop().call_later(0.05, released.set)
    assert store.spending.today("a") == Spending(5, 0)


async def test_without_a_store_each_day_starts_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = DailySpending()
    spent.add("a", usage(2))
    spent.add("a", usage(2))
    assert await spent.today("a") == Spending(4, 0)
    tomorrow = spending.start_of_day() + timedelta(days=1)
    monkeypatch.setattr(spending, "start_of_day", lambda: tomorrow)
    assert await spent.today("a") == Spending()
    assert await spent.active_runs("a") == 0
