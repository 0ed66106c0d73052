"""The ledger in PostgreSQL: what its spool is for, and a database that comes and goes."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from dramaturg.testing import until
from services.generation.calls import Answer, Purchase
from services.generation.ledger import LedgerError, LedgerUnavailableError, postgres
from services.generation.ledger.postgres import PostgresLedger
from services.generation.ledger.spool import Contents, Kept, Sent, Spool
from tests.support.postgres import PostgresServer


def bought(fingerprint: str, text: str = "x", call_number: int | None = None) -> Purchase:
    return Purchase(fingerprint, "p", "m", Answer(text, call_number=call_number))


def texts(url: str) -> dict[str, str]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT fingerprint, purchases FROM dramaturg_completions").fetchall())


def posted(url: str) -> int:
    with psycopg.connect(url) as connection:
        (count,) = connection.execute("SELECT count(*) FROM dramaturg_calls").fetchone() or (0,)
        return int(count)


def spools(folder: Path) -> list[Path]:
    return list(folder.rglob("*.spool"))


def durable(url: str) -> str:
    """The address with commits that outlive a crash of the server, as they do in production."""
    return f"{url}?options=-c%20synchronous_commit%3Don"


async def test_many_puts_are_one_transaction_and_each_is_there(postgres_url: str, tmp_path: Path) -> None:
    ledger = await PostgresLedger.open(postgres_url, tmp_path)
    for number in range(500):
        await ledger.put(f"f{number}", [bought(f"f{number}")])
    await until(lambda: len(texts(postgres_url)) == 500)
    found = await asyncio.gather(*(ledger.get(f"f{number}") for number in range(600)))
    assert [bool(one) for one in found] == [True] * 500 + [False] * 100
    with psycopg.connect(postgres_url) as connection:
        (transactions,) = connection.execute(
            "SELECT count(DISTINCT xmin::text) FROM dramaturg_completions"
        ).fetchone() or (0,)
    assert transactions <= 5
    await ledger.close()


async def test_only_calls_that_take_long_are_told_to_the_database(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LAG_SECONDS", 0.2)
    ledger = await PostgresLedger.open(postgres_url, tmp_path)
    quick, slow, given_up = [await ledger.record_call(name) for name in ("quick", "slow", "given up")]
    await ledger.put("quick", [bought("quick", call_number=quick)])
    await until(lambda: posted(postgres_url) == 2)
    await ledger.put("slow", [bought("slow", call_number=slow)])
    ledger.abandon([given_up])
    await until(lambda: posted(postgres_url) == 1)
    status = await ledger.status()
    assert (status.under_way, status.abandoned, status.unwritten) == (0, 1, 0)
    await ledger.close()


async def test_a_restart_of_the_database_loses_nothing_and_fails_nobody(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = await PostgresLedger.open(durable(postgres_url), tmp_path)
    await ledger.put("before", [bought("before")])
    await until(lambda: "before" in texts(postgres_url))
    postgres_server.kill()
    try:
        begun = time.monotonic()
        await ledger.put("while", [bought("while")])
        assert time.monotonic() - begun < 1, "who puts waits for no database"
        assert await ledger.get("while")
        asked = asyncio.create_task(ledger.get("before"))
        # By whoever asks first: the writer, the pool, or who reads.
        await until(lambda: "; retrying: " in caplog.text or "error connecting" in caplog.text)
    finally:
        postgres_server.start()
    assert await asked
    await until(lambda: set(texts(postgres_url)) == {"before", "while"})
    await ledger.close()
    assert not spools(tmp_path)


async def test_a_database_that_stays_away_is_said_so_and_the_spool_is_left_for_the_next(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "RETRY_SECONDS", 0.2)
    monkeypatch.setattr(postgres, "CLOSING_SECONDS", 0.2)
    ledger = await PostgresLedger.open(durable(postgres_url), tmp_path)
    postgres_server.kill()
    try:
        await ledger.put("f", [bought("f")])
        with pytest.raises(LedgerUnavailableError, match="does not answer"):
            await ledger.get("g")
        with pytest.raises(LedgerUnavailableError):
            await ledger.status()
        await ledger.close()
    finally:
        postgres_server.start()
    again = await PostgresLedger.open(durable(postgres_url), tmp_path)
    assert await again.get("f")
    await again.close()


async def test_the_spool_is_rewritten_without_what_the_database_has(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "SPOOL_BYTES", 10_000)
    ledger = await PostgresLedger.open(postgres_url, tmp_path)
    under_way = await ledger.record_call("under way")
    for number in range(20):
        await ledger.put(f"f{number}", [bought(f"f{number}", "x" * 1000)])
    (spool,) = spools(tmp_path)
    await until(lambda: spool.stat().st_size < 1000)
    assert f'"sent":{under_way}' in spool.read_text()
    await ledger.put("after", [bought("after")])
    assert "after" in spool.read_text()
    assert await ledger.get("f7")
    await ledger.close()


async def test_an_adopted_completion_does_not_replace_a_later_one(postgres_url: str, tmp_path: Path) -> None:
    ledger = await PostgresLedger.open(postgres_url, tmp_path)
    await ledger.put("f", [bought("f", "bought anew")])
    await until(lambda: "f" in texts(postgres_url))
    left = Contents({"f": Kept(1.0, "[]"), "g": Kept(1.0, "[]")}, {7: Sent("h", 1.0)})
    dead = Spool(spools(tmp_path)[0].parent, "dead")
    dead.rewrite(left)
    dead.close(remove=False)
    await ledger.beat()
    assert "bought anew" in texts(postgres_url)["f"]
    assert texts(postgres_url)["g"] == "[]"
    assert [call.fingerprint for call in (await ledger.status()).lost_calls] == ["h"]
    await ledger.close()


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """Lets no file of this process grow above a size in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_full_disk_stops_purchases_and_loses_no_answer_under_way(
    postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = await PostgresLedger.open(postgres_url, tmp_path)
    numbers = [await ledger.record_call(f"f{number}") for number in range(3)]
    with file_limit(1):
        for number in numbers:
            await ledger.put(f"f{number}", [bought(f"f{number}", call_number=number)])
        for _ in range(3):
            with pytest.raises(LedgerUnavailableError, match="no completions are bought"):
                await ledger.record_call("another")
    await until(lambda: len(texts(postgres_url)) == 3)
    assert caplog.text.count("cannot be written") == 1
    ledger.settle([await ledger.record_call("another")])
    status = await ledger.status()
    assert (status.completions, status.under_way, status.lost, status.abandoned) == (3, 0, 0, 0)
    await ledger.close()


async def test_an_answer_that_neither_the_disk_nor_the_database_takes_is_said_so(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "COMMIT_SECONDS", 0.2)
    ledger = await PostgresLedger.open(durable(postgres_url), tmp_path)
    number = await ledger.record_call("f")
    postgres_server.kill()
    try:
        with file_limit(1), pytest.raises(OSError, match="neither stored in the spool"):
            await ledger.put("f", [bought("f", call_number=number)])
        assert f'"sent":{number}' in spools(tmp_path)[0].read_text(), "the record of the call remains"
    finally:
        postgres_server.start()
    # The process lives, so that the database takes it later.
    await until(lambda: set(texts(postgres_url)) == {"f"})
    status = await ledger.status()
    assert (status.completions, status.under_way, status.lost, status.abandoned) == (1, 0, 0, 0)
    await ledger.close()


async def test_a_disk_that_the_spool_itself_fills_has_space_again(postgres_url: str, tmp_path: Path) -> None:
    ledger = await PostgresLedger.open(postgres_url, tmp_path)
    bought_numbers: list[int] = []
    with file_limit(64_000):
        async with asyncio.timeout(20):
            while len(bought_numbers) < 100:
                fingerprint = f"f{len(bought_numbers)}"
                try:
                    number = await ledger.record_call(fingerprint)
                except LedgerUnavailableError:
                    await asyncio.sleep(0.005)
                    continue
                await ledger.put(fingerprint, [bought(fingerprint, "x" * 2000, number)])
                bought_numbers.append(number)
        await until(lambda: len(texts(postgres_url)) == 100)
        status = await ledger.status()
    assert (status.completions, status.under_way, status.lost, status.abandoned) == (100, 0, 0, 0)
    await ledger.close()


async def test_a_folder_that_cannot_be_written_is_said_at_once(postgres_url: str) -> None:
    with pytest.raises(LedgerError, match="/proc/nothing"):
        await PostgresLedger.open(postgres_url, Path("/proc/nothing"))


async def test_a_later_release_s_ledger_is_refused(postgres_url: str, tmp_path: Path) -> None:
    await (await PostgresLedger.open(postgres_url, tmp_path)).close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("INSERT INTO dramaturg_ledger VALUES (99)")
    with pytest.raises(LedgerError, match="version 99"):
        await PostgresLedger.open(postgres_url, tmp_path)


async def test_several_may_open_an_empty_database_at_once(postgres_url: str, tmp_path: Path) -> None:
    ledgers = await asyncio.gather(*(PostgresLedger.open(postgres_url, tmp_path) for _ in range(5)))
    assert (await ledgers[0].status()).processes == 5
    for ledger in ledgers:
        await ledger.close()
