"""Commits in groups, and a database that fails, comes back or is locked.

Questions that are asked together.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest

from dramaturg.testing import until
from services.generation import ledger
from services.generation.calls import Answer, Purchase
from services.generation.ledger import BatchedLookup, Ledger, LedgerUnavailableError, open_ledger
from tests.services.generation.ledger.conftest import PageLimit
from tests.support.postgres import PostgresServer


def bought(fingerprint: str, text: str = "x", call_number: int | None = None) -> Purchase:
    return Purchase(fingerprint, "p", "m", Answer(text, call_number=call_number))


def texts(url: str) -> dict[str, str]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT fingerprint, purchases FROM dramaturg_completions").fetchall())


def transactions(url: str) -> int:
    """The number of transactions that wrote the completions."""
    with psycopg.connect(url) as connection:
        (count,) = connection.execute(
            "SELECT count(DISTINCT xmin::text) FROM dramaturg_completions"
        ).fetchone() or (0,)
        return int(count)


def durable(url: str) -> str:
    """The address with commits that outlive a crash of the server, as they do in production."""
    return f"{url}?options=-c%20synchronous_commit%3Don"


async def test_replicas_of_a_ledger_know_their_number(postgres_url: str) -> None:
    counts: dict[str, list[int]] = {"first": [], "second": []}
    async with open_ledger(postgres_url) as first:
        first.watch_replicas(counts["first"].append)
        async with open_ledger(postgres_url) as second:
            second.watch_replicas(counts["second"].append)
            await first.renew()
        await first.renew()
    assert counts == {"first": [1, 2, 1], "second": [2]}


async def test_what_arrives_during_a_commit_is_one_transaction(postgres_url: str) -> None:
    async with open_ledger(postgres_url) as opened:
        await asyncio.gather(*(opened.put(f"f{number}", [bought(f"f{number}")]) for number in range(500)))
        assert len(texts(postgres_url)) == 500
        found = await asyncio.gather(*(opened.get(f"f{number}") for number in range(600)))
    assert [bool(one) for one in found] == [True] * 500 + [False] * 100
    assert transactions(postgres_url) <= 3


async def test_another_connection_sees_a_change_once_its_call_returns(postgres_url: str) -> None:
    async with open_ledger(postgres_url) as opened:
        for number in range(5):
            call_number = await opened.record_call(f"f{number}")
            with psycopg.connect(postgres_url) as connection:
                query = "SELECT fingerprint FROM dramaturg_calls"
                assert connection.execute(query).fetchall() == [(f"f{number}",)]
            await opened.put(f"f{number}", [bought(f"f{number}", call_number=call_number)])
            assert f"f{number}" in texts(postgres_url)


async def test_a_caller_that_is_cancelled_leaves_no_call_in_flight_and_takes_no_other_s_commit(
    postgres_url: str,
) -> None:
    async with open_ledger(postgres_url) as opened:
        leaver = asyncio.create_task(opened.record_call("left"))
        stayers = [asyncio.create_task(opened.record_call(f"stays {number}")) for number in range(3)]
        await asyncio.sleep(0)
        leaver.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaver
        await asyncio.gather(*stayers)
        status = await opened.status()
    assert (status.under_way, status.lost, status.abandoned) == (3, 0, 0)


async def test_a_restart_of_the_database_loses_nothing_and_fails_nobody(
    postgres_server: PostgresServer, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_ledger(durable(postgres_url)) as opened:
        await opened.put("before", [bought("before")])
        call_number = await opened.record_call("while")
        postgres_server.kill()
        try:
            waiting = [
                asyncio.create_task(opened.put("while", [bought("while", call_number=call_number)])),
                asyncio.create_task(opened.record_call("after")),
            ]
            asked = asyncio.create_task(opened.get("before"))
            await until(lambda: "retrying: " in caplog.text)
            assert not any(task.done() for task in waiting), "nothing returns before its commit"
        finally:
            postgres_server.start()
        await asyncio.gather(*waiting)
        assert await asked
        assert set(texts(postgres_url)) == {"before", "while"}
        assert (await opened.status()).under_way == 1


async def test_nothing_is_bought_while_the_database_stays_away_and_what_fails_is_said(
    postgres_server: PostgresServer,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(ledger, "RETRY_SECONDS", 0.2)
    async with open_ledger(durable(postgres_url)) as opened:
        answered, given_up, refused = [await opened.record_call(name) for name in ("a", "b", "c")]
        postgres_server.kill()
        try:
            with pytest.raises(LedgerUnavailableError, match=r"no completions are bought: .*is unavailable"):
                await opened.record_call("d")
            with pytest.raises(LedgerUnavailableError, match="is unavailable"):
                await opened.get("a")
            with pytest.raises(LedgerUnavailableError):
                await opened.status()
            with pytest.raises(OSError, match="could not be stored"):
                await opened.put("a", [bought("a", call_number=answered)])
            opened.mark_unstored([answered])
            opened.abandon([given_up])
            opened.settle([refused])
        finally:
            postgres_server.start()
        # What nobody waited for is written with the next renewal of the lease.
        await until_written(opened, postgres_url)
        status = await opened.status()
    assert (status.completions, status.under_way, status.lost, status.abandoned) == (0, 0, 0, 1)
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1, "an outage is logged once"


async def until_written(opened: Ledger, url: str) -> None:
    await opened.renew()

    def is_written() -> bool:
        with psycopg.connect(url) as connection:
            return connection.execute("SELECT count(*) FROM dramaturg_calls").fetchone() == (2,)

    await until(is_written)


async def test_a_database_that_is_away_at_the_end_delays_the_end_by_little(
    postgres_server: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "CLOSING_SECONDS", 0.3)
    async with open_ledger(durable(postgres_url)) as opened:
        call_number = await opened.record_call("f")
        postgres_server.kill()
        waiting = asyncio.create_task(opened.put("f", [bought("f", call_number=call_number)]))
        await asyncio.sleep(0)
        begun = time.monotonic()
    try:
        assert time.monotonic() - begun < 3
        with pytest.raises(OSError, match="could not be stored"):
            await waiting
    finally:
        postgres_server.start()
    async with open_ledger(durable(postgres_url)) as again:
        assert await again.get("f") == ()
        assert (await again.status()).under_way == 1, "the record of the call remains"


async def test_two_processes_that_store_the_same_do_not_block_each_other(postgres_url: str) -> None:
    async with open_ledger(postgres_url) as one, open_ledger(postgres_url) as two:
        names = [f"f{number}" for number in range(200)]
        await asyncio.gather(
            *(one.put(name, [bought(name)]) for name in names),
            *(two.put(name, [bought(name)]) for name in reversed(names)),
        )
    assert len(texts(postgres_url)) == 200


async def test_a_completion_is_stored_together_with_the_end_of_its_record_or_not_at_all(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.sqlite3"
    async with open_ledger(f"sqlite:///{path}") as opened:
        purchase = bought("f", call_number=await opened.record_call("f"))
        with closing(sqlite3.connect(path)) as other:
            other.execute("ALTER TABLE dramaturg_calls RENAME TO aside")
            with pytest.raises(OSError, match="no such table"):
                await opened.put("f", [purchase])
            assert await opened.get("f") == ()
            other.execute("ALTER TABLE aside RENAME TO dramaturg_calls")
        await opened.put("f", [purchase])
        assert len(await opened.get("f")) == 1
        assert (await opened.status()).under_way == 0


async def test_no_call_is_sent_while_a_full_disk_takes_no_record_and_it_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, page_limit: PageLimit
) -> None:
    async with open_ledger(f"sqlite:///{tmp_path / 'l'}") as opened:
        page_limit.set(tmp_path / "l")
        with pytest.raises(OSError, match="full"):
            await opened.put("big", [bought("big", "x" * 1_000_000)])
        recorded = 0
        with suppress(LedgerUnavailableError):
            for recorded in range(10_000):
                await opened.record_call(f"{recorded:064}")
        with pytest.raises(LedgerUnavailableError, match=r"no completions are bought: .*full"):
            await opened.record_call("f" * 64)
        assert await opened.get("big") == ()
        assert (await opened.status()).under_way == recorded
        page_limit.lift()
        await opened.record_call("f" * 64)
        assert (await opened.status()).under_way == recorded + 1


async def test_the_lock_of_another_process_does_not_block_the_loop(tmp_path: Path) -> None:
    async with open_ledger(f"sqlite:///{tmp_path / 'l'}") as opened:
        settled = await opened.record_call("settled")
        with closing(sqlite3.connect(tmp_path / "l", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            opened.settle([settled])
            writes = asyncio.gather(opened.record_call("f"), opened.put("g", [bought("g")]), opened.renew())
            longest, last = 0.0, time.monotonic()
            for _ in range(20):
                await asyncio.sleep(0.01)
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
            assert not writes.done()
            assert await opened.get("g") == ()
            other.execute("COMMIT")
        await writes
        assert longest < 0.5
        assert await opened.get("g")
        assert (await opened.status()).under_way == 1, "the settled call is gone"


async def test_a_lock_that_stays_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LOCK_SECONDS", 0.1)
    async with open_ledger(f"sqlite:///{tmp_path / 'l'}") as opened:
        with closing(sqlite3.connect(tmp_path / "l", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerUnavailableError, match=r"no completions are bought: .*locked"):
                await opened.record_call("f")
            with pytest.raises(OSError, match="locked"):
                await opened.put("g", [bought("g")])
            other.execute("COMMIT")
        assert await opened.record_call("f") > 0


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
