"""The ledger: what is kept, and what a broken one does."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dramaturg.testing import until
from services.generation.calls import Alternative, Answer, FinishReason, Purchase, Token, TokenCounts
from services.generation.ledger import LedgerError, LedgerUnavailableError, SqliteLedger, sqlite

ANSWER = Answer(
    text="text 好",
    finish=FinishReason.LENGTH,
    refusal="r",
    model="m-1",
    counts=TokenCounts(10, 5, 2),
    tokens=(Token("t", -0.5, (Alternative("u", -1.0),)),),
    latency=0.25,
    retried=3,
)
PURCHASE = Purchase("f", "p", "m", ANSWER, cost=0.5)


async def test_what_is_put_is_there_after_a_restart_and_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "ledger.sqlite3"
    ledger = SqliteLedger(path)
    bare = Purchase("g", "p", "m", Answer("x"))
    await ledger.put("f", [PURCHASE, bare])
    await ledger.close()
    ledger = SqliteLedger(path)
    first, second = await ledger.get("f")
    assert first.answer == ANSWER
    assert (first.cached, first.cost, first.answer.retried) == (True, 0.0, 0)
    assert (first.fingerprint, first.provider, first.requested_model) == ("f", "p", "m")
    assert second.answer == bare.answer
    assert await ledger.get("g") == ()
    await ledger.put("f", [bare])
    assert len(await ledger.get("f")) == 1
    await ledger.close()


async def test_two_processes_may_share_a_file(tmp_path: Path) -> None:
    one, two = SqliteLedger(tmp_path / "l"), SqliteLedger(tmp_path / "l")
    await one.put("f", [PURCHASE])
    await two.put("g", [PURCHASE])
    assert await two.get("f")
    assert await one.get("g")
    await one.close()
    await two.close()


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("not a database, and long enough to be taken for none" * 10)
    with pytest.raises(LedgerError, match=str(path)):
        SqliteLedger(path)
    with pytest.raises(LedgerError, match=str(path)):
        SqliteLedger(path / "below a file")


def test_a_ledger_of_another_version_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "l")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(LedgerError, match="version 99"):
        SqliteLedger(tmp_path / "l")


async def test_a_write_that_fails_is_an_error_of_the_system(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "l")
    connection = sqlite3.connect(tmp_path / "l")
    connection.execute("DROP TABLE completions")
    connection.close()
    with pytest.raises(OSError, match="could not store"):
        await ledger.put("f", [PURCHASE])
    await ledger.close()


async def test_a_completion_is_kept_together_with_the_end_of_its_note_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    ledger = SqliteLedger(path)
    bought = replace(PURCHASE, answer=replace(ANSWER, call_number=await ledger.record_call("f")))
    with closing(sqlite3.connect(path)) as other:
        other.execute("ALTER TABLE calls RENAME TO aside")
        with pytest.raises(OSError, match="no such table"):
            await ledger.put("f", [bought])
        assert await ledger.get("f") == ()
        other.execute("ALTER TABLE aside RENAME TO calls")
    await ledger.put("f", [bought])
    assert len(await ledger.get("f")) == 1
    assert (await ledger.status()).under_way == 0
    await ledger.close()


async def test_a_ledger_of_version_1_is_read_and_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "l"
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TABLE completions (fingerprint TEXT PRIMARY KEY, recorded_at REAL NOT NULL, "
        "purchases TEXT NOT NULL) STRICT"
    )
    kept = '[{"fingerprint":"f","provider":"p","requested_model":"m","answer":{"text":"old","latency":1.0}}]'
    connection.execute("INSERT INTO completions VALUES ('f', 1.0, ?)", (kept,))
    connection.execute("PRAGMA user_version=1")
    connection.commit()
    connection.close()
    for _ in range(2):
        ledger = SqliteLedger(path)
        assert (await ledger.get("f"))[0].answer.text == "old"
        ledger.settle([await ledger.record_call("g")])
        assert (await ledger.status()).completions == 1
        await ledger.close()


async def test_no_call_is_sent_while_a_full_disk_takes_no_record_and_it_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = SqliteLedger(tmp_path / "l")
    (pages,) = ledger._connection.execute("PRAGMA page_count").fetchone()
    ledger._connection.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(OSError, match="full"):
        await ledger.put("big", [Purchase("big", "p", "m", Answer("x" * 100_000))])
    recorded = 0
    with suppress(LedgerUnavailableError):
        for recorded in range(1000):
            await ledger.record_call(f"{recorded:064}")
    with pytest.raises(LedgerUnavailableError, match=r"no completions are bought: .*full"):
        await ledger.record_call("f" * 64)
    assert caplog.text.count("full") == 1
    assert await ledger.get("big") == ()
    assert (await ledger.status()).under_way == recorded
    ledger._connection.execute(f"PRAGMA max_page_count={pages + 100}")
    await ledger.record_call("f" * 64)
    await ledger.close()


async def test_the_lock_of_another_process_does_not_block_the_loop(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "l")
    settled = await ledger.record_call("settled")
    other = sqlite3.connect(tmp_path / "l", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    ledger.settle([settled])
    writes = asyncio.gather(ledger.record_call("f"), ledger.put("g", [PURCHASE]), ledger.beat())
    longest, last = 0.0, time.monotonic()
    for _ in range(20):
        await asyncio.sleep(0.01)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert not writes.done()
    assert await ledger.get("g") == ()
    other.execute("COMMIT")
    await writes
    await until(lambda: ledger._writer is None)
    assert longest < 0.5
    assert (await ledger.get("g"))[0].answer.text == ANSWER.text
    assert (await ledger.status()).under_way == 1, "the settled call is gone"
    other.close()
    await ledger.close()


async def test_a_lock_that_stays_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "LOCK_SECONDS", 0.1)
    ledger = SqliteLedger(tmp_path / "l")
    other = sqlite3.connect(tmp_path / "l", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailableError, match=r"no completions are bought: .*locked"):
        await ledger.record_call("f")
    with pytest.raises(OSError, match="locked"):
        await ledger.put("g", [PURCHASE])
    other.execute("COMMIT")
    other.close()
    assert await ledger.record_call("f") > 0
    await ledger.close()
