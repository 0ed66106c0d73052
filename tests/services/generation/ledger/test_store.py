"""The tables of a ledger: of earlier releases, of later ones, and of none."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from dramaturg.database.database import create_engine
from services.generation.calls import Alternative, Answer, FinishReason, Purchase, Token, TokenCounts
from services.generation.ledger import LedgerError, open_ledger

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
STORED = '[{"fingerprint":"f","provider":"p","requested_model":"m","answer":{"text":"old","latency":1.0}}]'
SQLITE = (
    """
    CREATE TABLE completions (fingerprint TEXT PRIMARY KEY, recorded_at REAL NOT NULL,
      purchases TEXT NOT NULL) STRICT;
    """,
    """
    CREATE TABLE processes (id TEXT PRIMARY KEY, machine TEXT NOT NULL, pid INTEGER NOT NULL,
      started TEXT NOT NULL, lease_until REAL NOT NULL) STRICT;
    CREATE TABLE calls (process TEXT NOT NULL, number INTEGER NOT NULL, fingerprint TEXT NOT NULL,
      sent_at REAL NOT NULL, abandoned INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (process, number))
      STRICT, WITHOUT ROWID;
    INSERT INTO calls (process, number, fingerprint, sent_at) VALUES ('dead', 1, 'lost', 1.0);
    """,
    "ALTER TABLE calls ADD COLUMN unstored INTEGER NOT NULL DEFAULT 0;",
)
POSTGRESQL = (
    """
    CREATE TABLE dramaturg_ledger (version integer NOT NULL);
    CREATE TABLE dramaturg_completions (fingerprint text PRIMARY KEY,
      recorded_at double precision NOT NULL, purchases text NOT NULL);
    CREATE TABLE dramaturg_calls (process text NOT NULL, number bigint NOT NULL,
      fingerprint text NOT NULL, sent_at double precision NOT NULL, abandoned boolean NOT NULL,
      PRIMARY KEY (process, number));
    CREATE TABLE dramaturg_processes (id text PRIMARY KEY, machine text NOT NULL, pid integer NOT NULL,
      started text NOT NULL, lease_until timestamptz NOT NULL);
    INSERT INTO dramaturg_calls VALUES ('dead', 1, 'lost', 1.0, false);
    """,
    "ALTER TABLE dramaturg_calls ADD COLUMN unstored boolean NOT NULL DEFAULT false;",
)
"""The statements that led to each version of earlier releases."""


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


async def assert_upgraded(url: str, *, lost: int) -> None:
    for repeat in range(2):
        async with open_ledger(url) as ledger:
            assert (await ledger.get("f"))[0].answer.text == "old"
            ledger.settle([await ledger.record_call("g")])
            ledger.mark_unstored([await ledger.record_call(f"unstored {repeat}")])
            status = await ledger.status()
            assert (status.completions, status.under_way, status.lost, status.processes) == (1, 0, lost, 1)


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_file_of_an_earlier_release_is_upgraded(tmp_path: Path, version: int) -> None:
    with closing(sqlite3.connect(tmp_path / "l", isolation_level=None)) as connection:
        connection.executescript("".join(SQLITE[:version]))
        connection.execute("INSERT INTO completions VALUES ('f', 1.0, ?)", (STORED,))
        connection.execute(f"PRAGMA user_version={version}")
    await assert_upgraded(f"sqlite:///{tmp_path / 'l'}", lost=int(version > 1))


@pytest.mark.parametrize("version", [1, 2])
async def test_a_database_of_an_earlier_release_is_upgraded(postgres_url: str, version: int) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("".join(POSTGRESQL[:version]).encode())
        connection.execute("INSERT INTO dramaturg_completions VALUES ('f', 1.0, %s)", (STORED,))
        connection.execute("INSERT INTO dramaturg_ledger VALUES (%s)", (version,))
    await assert_upgraded(postgres_url, lost=1)


async def test_a_ledger_of_a_later_release_is_refused(ledger_url: str) -> None:
    async with open_ledger(ledger_url):
        pass
    engine, _ = create_engine(ledger_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE dramaturg_ledger SET version = 99"))
    engine.dispose()
    with pytest.raises(LedgerError, match="version 99"):
        async with open_ledger(ledger_url):
            pass


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
