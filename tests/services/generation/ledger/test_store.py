"""The tables of a ledger: of earlier releases, of later ones, and of none."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from dramaturg.database.database import create_engine
from gateway.runs.store import open_store
from services.generation.calls import Alternative, Answer, FinishReason, Purchase, Token, TokenCounts
from services.generation.ledger import LedgerError, LedgerUnavailableError, open_ledger
from services.generation.ledger.batches import RequestState, WaitingRequest
from services.generation.ledger.store import (
    SCHEMA,
    Changes,
    LedgerStore,
    Process,
    SentCall,
    StoredCompletion,
)

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
FORMER = (
    "DROP TABLE dramaturg_batches",
    "DROP TABLE dramaturg_batch_requests",
    "DROP TABLE dramaturg_ledger_revision",
    "CREATE TABLE dramaturg_ledger (version INTEGER NOT NULL PRIMARY KEY)",
    "INSERT INTO dramaturg_ledger VALUES (4)",
)
"""Makes a ledger one of the release before its revisions."""


async def test_an_answer_comes_back_as_it_was_and_costs_nothing(tmp_path: Path) -> None:
    bare = Purchase("g", "p", "m", Answer("x"))
    async with open_ledger(f"sqlite:///{tmp_path / 'l'}") as ledger:
        await ledger.put("f", [Purchase("f", "p", "m", ANSWER, cost=0.5), bare])
    async with open_ledger(f"sqlite:///{tmp_path / 'l'}") as ledger:
        first, second = await ledger.get("f")
    assert first.answer == ANSWER
    assert (first.cached, first.cost, first.answer.retried) == (True, 0.0, 0)
    assert (first.fingerprint, first.provider, first.requested_model) == ("f", "p", "m")
    assert second.answer == bare.answer


def set_version(url: str, *statements: str) -> None:
    engine, _ = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


async def assert_upgraded(url: str) -> None:
    for repeat in range(2):
        async with open_ledger(url) as ledger:
            assert (await ledger.get("f"))[0].answer.text == "stored"
            ledger.settle([await ledger.record_call("g")])
            ledger.mark_unstored([await ledger.record_call(f"unstored {repeat}")])
            status = await ledger.status()
            assert (status.completions, status.under_way, status.lost, status.processes) == (1, 0, 1, 1)
    engine, _ = create_engine(url)
    with engine.connect() as connection:
        assert not sa.inspect(connection).has_table("dramaturg_ledger")
        context = MigrationContext.configure(connection, opts={"include_name": of_ledger})
        assert compare_metadata(context, SCHEMA.tables) == []
    engine.dispose()


def of_ledger(name: str | None, kind: str, parents: object) -> bool:
    del parents
    return kind != "table" or name in SCHEMA.tables.tables


async def test_a_file_of_the_release_before_revisions_is_upgraded(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "l", isolation_level=None)) as connection:
        connection.executescript((Path(__file__).parent / "former_ledger.sql").read_text(encoding="utf-8"))
    await assert_upgraded(f"sqlite:///{tmp_path / 'l'}")


async def test_a_database_of_the_release_before_revisions_is_upgraded(postgres_url: str) -> None:
    async with open_ledger(postgres_url) as ledger:
        await ledger.put("f", [Purchase("f", "p", "m", Answer("stored"))])
        await ledger.record_call("lost")
    set_version(postgres_url, *FORMER)
    await assert_upgraded(postgres_url)


async def test_a_ledger_of_a_later_release_is_refused(ledger_url: str) -> None:
    async with open_ledger(ledger_url):
        pass
    set_version(ledger_url, "UPDATE dramaturg_ledger_revision SET version_num = '9999', oldest = '9999'")
    with pytest.raises(LedgerError, match=r"revision 9999.*newer"):
        async with open_ledger(ledger_url):
            pass


async def test_a_ledger_of_a_release_before_that_is_refused(ledger_url: str) -> None:
    async with open_ledger(ledger_url):
        pass
    set_version(ledger_url, *FORMER, "UPDATE dramaturg_ledger SET version = 3")
    with pytest.raises(LedgerError, match="version 3; only version 4 can be upgraded"):
        async with open_ledger(ledger_url):
            pass


async def test_the_runs_and_the_ledger_share_a_database(postgres_url: str) -> None:
    store = await asyncio.to_thread(open_store, postgres_url)
    async with open_ledger(postgres_url) as ledger:
        await ledger.put("f", [Purchase("f", "p", "m", Answer("stored"))])
    await asyncio.to_thread(store.close)
    await asyncio.to_thread(lambda: open_store(postgres_url).close())
    async with open_ledger(postgres_url) as ledger:
        assert len(await ledger.get("f")) == 1


async def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("not a database, and long enough to be taken for none" * 10)
    for place in (path, path / "below a file"):
        with pytest.raises(LedgerError, match=str(path)):
            async with open_ledger(f"sqlite:///{place}"):
                pass


async def test_several_may_open_an_empty_database_at_once(ledger_url: str) -> None:
    async with AsyncExitStack() as stack:
        ledgers = await asyncio.gather(
            *(stack.enter_async_context(open_ledger(ledger_url)) for _ in range(5))
        )
        assert (await ledgers[0].status()).processes == 5


async def test_on_a_file_the_changes_of_one_turn_are_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = LedgerStore.try_write

    def count(store: LedgerStore, process: str, changes: Changes) -> bool:
        written.append(len(changes.sent))
        return write(store, process, changes)

    monkeypatch.setattr(LedgerStore, "try_write", count)
    async with open_ledger(f"sqlite:///{tmp_path / 'l'}") as ledger:
        recorded = [asyncio.create_task(ledger.record_call(f"f{number}")) for number in range(8)]
        cancelled = asyncio.create_task(ledger.record_call("f8"))
        while not written:
            assert not any(one.done() for one in recorded)
            await asyncio.sleep(0)
        cancelled.cancel()
        assert len(set(await asyncio.gather(*recorded))) == 8
        assert written[0] == 9
        with closing(sqlite3.connect(tmp_path / "l")) as other:
            found = other.execute("SELECT fingerprint FROM dramaturg_calls").fetchall()
        assert {*found} >= {(f"f{number}",) for number in range(8)}


async def test_a_defect_leaves_no_caller_waiting(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*changes: object) -> None:
        raise TypeError("a defect")

    async with open_ledger(ledger_url) as ledger:
        with monkeypatch.context() as patched:
            patched.setattr(LedgerStore, "_statements", fail)
            async with asyncio.timeout(10):
                failed = await asyncio.gather(*map(ledger.record_call, "ab"), return_exceptions=True)
        assert [type(one) for one in failed] == [TypeError, TypeError]
        assert await ledger.record_call("c") == 3


async def test_nothing_is_written_after_the_end(ledger_url: str) -> None:
    async with open_ledger(ledger_url) as ledger:
        pass
    with pytest.raises(LedgerUnavailableError, match="closed"):
        await ledger.record_call("f")
    with pytest.raises(OSError, match="closed"):
        await ledger.put("f", [Purchase("f", "p", "m", Answer("x"))])


async def test_the_log_of_a_file_is_moved_by_renewals_alone(tmp_path: Path) -> None:
    file = tmp_path / "l"
    async with open_ledger(f"sqlite:///{file}") as ledger:
        for number in range(60):
            await ledger.put(str(number), [Purchase("f", "p", "m", Answer("x" * 100_000))])
        assert file.stat().st_size < 1_000_000
        await ledger.renew()
        assert file.stat().st_size > 6_000_000


def test_the_driver_and_sqlalchemy_write_the_same(tmp_path: Path) -> None:
    def waiting(fingerprint: str, **changed: Any) -> WaitingRequest:
        return WaitingRequest(fingerprint, "p", "a", "m", "{}", 1.0, 9.0)._replace(**changed)

    groups = (
        Changes(
            sent=[SentCall(number, f"f{number}", 1.5) for number in range(1, 7)],
            asked=[waiting("w1"), waiting("w2"), waiting("w3")],
        ),
        Changes(
            stored=[
                StoredCompletion("f1", 2.0, "[1]", [1], ["w1"]),
                StoredCompletion("f1", 3.0, "[2]", [2]),
                StoredCompletion("f0", 3.0, '"好 \\ud800"', []),
            ],
            abandoned={3},
            unstored={4},
            settled={5},
            asked=[waiting("w2", deadline=5.0, asked_at=4.0), waiting("w4", state=RequestState.LIVE)],
            told=[waiting("w3", state=RequestState.TOLD, answer="{}")],
        ),
        Changes(stored=[StoredCompletion("f1", 4.0, "[3]", [])], asked=[waiting("w4", deadline=1.0)]),
    )
    process = Process("p", "", 1, "")
    contents = []
    for name in ("driver", "sqlalchemy"):
        store = LedgerStore(f"sqlite:///{tmp_path / name}", 1.0)
        store.open(process)
        for changes in groups:
            if name == "driver":
                assert store.try_write(process.id, changes)
            else:
                store.write(process.id, changes)
        found = (store.try_look_up("f1"), store.try_look_up("none"), dict(store.look_up(["f1", "none"])))
        assert found == (["[3]"], [], {"f1": "[3]"})
        store.close()
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            rows = [line for line in connection.iterdump() if "dramaturg_leases" not in line]
        contents.append(rows)
    assert contents[0] == contents[1]
    assert sum(line.startswith('INSERT INTO "dramaturg_') for line in contents[0]) == 9
