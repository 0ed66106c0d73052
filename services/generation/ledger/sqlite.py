"""A ledger in one SQLite file, or in memory."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from services.generation import records
from services.generation.calls import Purchase
from services.generation.ledger.base import (
    MOST_LISTED,
    Ledger,
    LedgerError,
    LedgerKind,
    LedgerStatus,
    LedgerUnavailableError,
    LostCall,
)
from services.generation.ledger.processes import LEASE_SECONDS, Process, living
from services.generation.metrics import LEDGER_FAILURES

logger = logging.getLogger(__name__)

_MIGRATIONS = (
    # Version 1
    """
    CREATE TABLE completions (
      fingerprint TEXT PRIMARY KEY,
      recorded_at REAL NOT NULL, -- seconds since 1970 in UTC
      purchases TEXT NOT NULL    -- JSON list: the calls that led to a usable answer, in order
    ) STRICT;
    """,
    # Version 2
    """
    CREATE TABLE processes (
      id TEXT PRIMARY KEY,
      machine TEXT NOT NULL,
      pid INTEGER NOT NULL,
      started TEXT NOT NULL,
      lease_until REAL NOT NULL
    ) STRICT;
    CREATE TABLE calls (         -- sent, and not yet answered or given up on
      process TEXT NOT NULL,
      number INTEGER NOT NULL,
      fingerprint TEXT NOT NULL,
      sent_at REAL NOT NULL,
      abandoned INTEGER NOT NULL DEFAULT 0,
      PRIMARY KEY (process, number)
    ) STRICT, WITHOUT ROWID;
    """,
    # Version 3
    """
    ALTER TABLE calls ADD COLUMN unstored INTEGER NOT NULL DEFAULT 0; -- answered
    """,
)
SCHEMA_VERSION = len(_MIGRATIONS)
LOCK_SECONDS = 5.0
"""How long writes wait for the lock of another process."""
_FIRST_WAIT_SECONDS = 0.005
_MAX_WAIT_SECONDS = 0.1

Result = TypeVar("Result")


class SqliteLedger(Ledger):
    """A ledger in one SQLite file, or in memory.

    Each read or write blocks the event loop for tens of microseconds, so no caller receives a completion that
    is not yet committed. While another process holds the write lock, writes wait without blocking the loop,
    at most ``LOCK_SECONDS``. With ``synchronous=NORMAL`` in WAL mode a commit survives the death of the
    process; the last commits before a power loss may be lost, and the file stays consistent (SQLite
    documentation, "Write-Ahead Logging").
    """

    def __init__(self, path: Path | None) -> None:
        """Opens or creates the file; None keeps the ledger in memory.

        Raises:
            LedgerError: The file cannot be written, is not a ledger, or has a later version.
        """
        self._path = path
        self._process = Process.this()
        self._numbers = itertools.count(1)
        self._writable = True
        self._unwritten: list[tuple[str, Sequence[tuple[object, ...]]]] = []
        """Changes that wait for the lock, in order."""
        self._writer: asyncio.Task[None] | None = None
        where = ":memory:" if path is None else str(path)
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(where, isolation_level=None, timeout=LOCK_SECONDS)
            self._prepare(where)
            self._connection.execute("PRAGMA busy_timeout=0")
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"the ledger {where} cannot be used: {error}") from error

    def _prepare(self, where: str) -> None:
        run = self._connection.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=NORMAL")
        with self._connection:  # commits at the end, or rolls back
            run("BEGIN IMMEDIATE")
            (version,) = run("PRAGMA user_version").fetchone()
            if version > SCHEMA_VERSION:
                raise LedgerError(
                    f"the ledger {where} has version {version}; this release reads up to {SCHEMA_VERSION}"
                )
            for migration in _MIGRATIONS[version:]:
                for statement in migration.split(";"):
                    run(statement)
            run(f"PRAGMA user_version={SCHEMA_VERSION}")
            # A process without a row counts as dead, so the rows of dead processes are deleted.
            alive = living(_processes(self._connection))
            for (known,) in run("SELECT id FROM processes").fetchall():
                if known not in alive:
                    run("DELETE FROM processes WHERE id = ?", (known,))
        self.renew()

    async def beat(self) -> None:
        """Renews the lease of this process. Raises sqlite3.Error where the file cannot be written."""
        await self._when_unlocked(self.renew)

    def renew(self) -> None:
        process = self._process
        self._connection.execute(
            "INSERT OR REPLACE INTO processes VALUES (?, ?, ?, ?, ?)",
            (process.id, process.machine, process.pid, process.started, time.time() + LEASE_SECONDS),
        )

    async def get(self, fingerprint: str) -> tuple[Purchase, ...]:
        """Returns the calls stored for the request, marked as cached. Empty: none are stored."""
        try:
            row = await self._when_unlocked(
                lambda: self._connection.execute(
                    "SELECT purchases FROM completions WHERE fingerprint = ?", (fingerprint,)
                ).fetchone()
            )
        except sqlite3.Error as error:
            raise LedgerUnavailableError(f"the ledger cannot be read: {error}") from error
        return () if row is None else records.from_text(row[0])

    async def record_call(self, fingerprint: str) -> int:
        """Records the call in its own transaction."""
        number = next(self._numbers)
        row = self._process.id, number, fingerprint, time.time()
        statement = "INSERT INTO calls (process, number, fingerprint, sent_at) VALUES (?, ?, ?, ?)"
        try:
            await self._when_unlocked(lambda: self._connection.execute(statement, row))
        except sqlite3.Error as error:
            self._report(error)
            raise LedgerUnavailableError(
                f"the ledger cannot be written, so no completions are bought: {error}"
            ) from error
        self._writable = True
        return number

    async def put(self, fingerprint: str, purchases: Sequence[Purchase]) -> None:
        """Stores the calls. Raises OSError where the file cannot be written, for example on a full disk."""
        kept = fingerprint, time.time(), records.to_text(purchases)
        settled = [(self._process.id, number) for number in records.call_numbers(purchases, fingerprint)]

        def write() -> None:
            with self._connection:  # commits at the end, or rolls back
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute("INSERT OR REPLACE INTO completions VALUES (?, ?, ?)", kept)
                self._connection.executemany(_SETTLE, settled)

        try:
            await self._when_unlocked(write)
        except sqlite3.Error as error:
            raise OSError(f"the ledger could not store a completion: {error}") from error

    def settle(self, call_numbers: Collection[int]) -> None:
        self._write(_SETTLE, [(self._process.id, number) for number in call_numbers])

    def abandon(self, call_numbers: Collection[int]) -> None:
        self._write(
            "UPDATE calls SET abandoned = 1 WHERE process = ? AND number = ?",
            [(self._process.id, number) for number in call_numbers],
        )

    def mark_unstored(self, call_numbers: Collection[int]) -> None:
        self._write(
            "UPDATE calls SET unstored = 1 WHERE process = ? AND number = ?",
            [(self._process.id, number) for number in call_numbers],
        )

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Writes changes now, or once the file is unlocked."""
        self._unwritten.append((statement, rows))
        if self._writer is not None:
            return
        try:
            self._write_waiting()
        except sqlite3.Error as error:
            if _is_locked(error):
                self._writer = asyncio.create_task(self._write_later())
            else:
                self._give_up(error)

    def _write_waiting(self) -> None:
        while self._unwritten:
            self._connection.executemany(*self._unwritten[0])
            del self._unwritten[0]
        self._writable = True

    async def _write_later(self) -> None:
        try:
            await self._when_unlocked(self._write_waiting)
        except sqlite3.Error as error:
            self._give_up(error)
        finally:
            self._writer = None

    def _give_up(self, error: sqlite3.Error) -> None:
        self._unwritten.clear()
        self._report(error)

    def _report(self, error: sqlite3.Error) -> None:
        if self._writable:
            LEDGER_FAILURES.add("record")
            logger.error("the ledger cannot be written: %s", error)
        self._writable = False

    async def _when_unlocked(self, work: Callable[[], Result]) -> Result:
        """Returns the result of a short transaction, repeated while another process has the lock."""
        give_up = time.monotonic() + LOCK_SECONDS
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                return work()
            except sqlite3.Error as error:
                if not _is_locked(error) or time.monotonic() + wait > give_up:
                    raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, _MAX_WAIT_SECONDS)

    async def status(self) -> LedgerStatus:
        """Counts completions and calls. A file is counted in a thread over a separate connection."""
        try:
            if self._path is None:
                return _status(self._connection, LedgerKind.MEMORY)
            return await asyncio.to_thread(_status_of_file, self._path)
        except sqlite3.Error as error:
            raise LedgerUnavailableError(f"the ledger cannot be read: {error}") from error

    async def close(self) -> None:
        """Closes the file. Calls of this process in flight count as lost from now on."""
        self._write("DELETE FROM processes WHERE id = ?", [(self._process.id,)])
        if self._writer is not None:
            await asyncio.wait([self._writer])
        self._connection.close()


def _is_locked(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


_SETTLE = "DELETE FROM calls WHERE process = ? AND number = ?"
# Answered calls that were sent again: a later one has the same fingerprint, or a completion is stored.
_BOUGHT_AGAIN = """
SELECT fingerprint, sent_at, process FROM (
  SELECT *, row_number() OVER (PARTITION BY fingerprint ORDER BY sent_at DESC) AS place
  FROM calls WHERE unstored
)
WHERE place > 1 OR fingerprint IN (SELECT fingerprint FROM completions)
"""


def _processes(connection: sqlite3.Connection) -> Iterator[tuple[Process, float]]:
    now = time.time()
    rows = connection.execute("SELECT id, machine, pid, started, lease_until FROM processes").fetchall()
    for *process, lease_until in rows:
        yield Process(*process), lease_until - now


def _status_of_file(path: Path) -> LedgerStatus:
    with closing(sqlite3.connect(path, timeout=5.0)) as connection:
        return _status(connection, LedgerKind.SQLITE)


def _status(connection: sqlite3.Connection, kind: LedgerKind) -> LedgerStatus:
    def number(query: str, *values: object) -> int:
        (result,) = connection.execute(query, values).fetchone()
        return int(result)

    alive = sorted(living(_processes(connection)))
    silent = "calls WHERE NOT abandoned AND NOT unstored"
    is_alive = f"process IN ({', '.join('?' * len(alive))})"
    lost = connection.execute(
        "SELECT fingerprint, sent_at, process, abandoned, 0 FROM calls "  # noqa: S608 - placeholders only
        f"WHERE NOT unstored AND (abandoned OR NOT {is_alive}) "
        f"UNION ALL SELECT *, 0, 1 FROM ({_BOUGHT_AGAIN}) ORDER BY sent_at DESC LIMIT ?",
        (*alive, MOST_LISTED),
    )
    return LedgerStatus(
        kind=kind,
        completions=number("SELECT count(*) FROM completions"),
        size=number("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"),
        processes=len(alive),
        under_way=number(f"SELECT count(*) FROM {silent} AND {is_alive}", *alive),  # noqa: S608
        lost=number(f"SELECT count(*) FROM {silent} AND NOT {is_alive}", *alive),  # noqa: S608
        abandoned=number("SELECT count(*) FROM calls WHERE abandoned"),
        bought_again=number(f"SELECT count(*) FROM ({_BOUGHT_AGAIN})"),  # noqa: S608 - constants only
        lost_calls=tuple(
            LostCall(mark, at, process, bool(gone), bool(told)) for mark, at, process, gone, told in lost
        ),
    )
