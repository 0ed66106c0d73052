"""The tables of a ledger in PostgreSQL, and the statements on them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import conninfo, sql
from psycopg_pool import AsyncConnectionPool

from services.generation.ledger.base import MOST_LISTED, LedgerError, LedgerKind, LedgerStatus, LostCall
from services.generation.ledger.processes import LEASE_SECONDS, Process, living
from services.generation.ledger.spool import Contents

_MIGRATIONS = (
    # Version 1
    """
    CREATE TABLE dramaturg_completions (
      fingerprint text PRIMARY KEY,
      recorded_at double precision NOT NULL, -- seconds since 1970 in UTC, by the clock of who bought it
      purchases text NOT NULL                -- JSON list: the calls that led to a usable answer, in order
    );
    CREATE TABLE dramaturg_calls (           -- sent, and not yet answered or given up on
      process text NOT NULL,
      number bigint NOT NULL,
      fingerprint text NOT NULL,
      sent_at double precision NOT NULL,
      abandoned boolean NOT NULL,
      PRIMARY KEY (process, number)
    );
    CREATE TABLE dramaturg_processes (
      id text PRIMARY KEY,
      machine text NOT NULL,
      pid integer NOT NULL,
      started text NOT NULL,
      lease_until timestamptz NOT NULL
    );
    """,
    # Version 2
    """
    ALTER TABLE dramaturg_calls ADD COLUMN unstored boolean NOT NULL DEFAULT false; -- answered
    """,
)
SCHEMA_VERSION = len(_MIGRATIONS)
_LOCK = 0x6472616D61  # serialises concurrent migrations
_CONNECT_SECONDS = 10

_KEEP = """
INSERT INTO dramaturg_completions AS known SELECT * FROM unnest(%s::text[], %s::float8[], %s::text[])
ON CONFLICT (fingerprint) DO UPDATE SET recorded_at = excluded.recorded_at, purchases = excluded.purchases
WHERE known.recorded_at < excluded.recorded_at
"""
_NOTE = """
INSERT INTO dramaturg_calls
SELECT %s, * FROM unnest(%s::bigint[], %s::text[], %s::float8[], %s::boolean[], %s::boolean[])
ON CONFLICT (process, number) DO UPDATE SET abandoned = excluded.abandoned, unstored = excluded.unstored
"""
_SETTLE = "DELETE FROM dramaturg_calls WHERE process = %s AND number = ANY(%s::bigint[])"
_LOOK_UP = "SELECT fingerprint, purchases FROM dramaturg_completions WHERE fingerprint = ANY(%s::text[])"
_RENEW = """
INSERT INTO dramaturg_processes VALUES (%s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until
"""
_PROCESSES = """
SELECT id, machine, pid, started, extract(epoch FROM lease_until - clock_timestamp())::float8
FROM dramaturg_processes
"""
# Answered calls that were sent again: a later one has the same fingerprint, or a completion is stored.
_BOUGHT_AGAIN = """
SELECT fingerprint, sent_at, process FROM (
  SELECT *, row_number() OVER (PARTITION BY fingerprint ORDER BY sent_at DESC) AS place
  FROM dramaturg_calls WHERE unstored
) AS answered
WHERE place > 1 OR fingerprint IN (SELECT fingerprint FROM dramaturg_completions)
"""
_COUNTS = f"""
SELECT (SELECT count(*) FROM dramaturg_completions),
  (SELECT sum(pg_total_relation_size(name::regclass))::bigint
   FROM unnest(ARRAY['dramaturg_completions', 'dramaturg_calls', 'dramaturg_processes']) AS name),
  count(*) FILTER (WHERE NOT abandoned AND process = ANY(%(alive)s) AND process <> %(own)s),
  count(*) FILTER (WHERE NOT abandoned AND process <> ALL(%(alive)s)),
  count(*) FILTER (WHERE abandoned),
  (SELECT count(*) FROM ({_BOUGHT_AGAIN}) AS again)
FROM dramaturg_calls WHERE NOT unstored
"""  # noqa: S608 - constants only
_LOST = f"""
SELECT fingerprint, sent_at, process, abandoned, false AS answered FROM dramaturg_calls
WHERE NOT unstored AND (abandoned OR process <> ALL(%s))
UNION ALL SELECT *, false, true FROM ({_BOUGHT_AGAIN}) AS again
ORDER BY sent_at DESC LIMIT %s
"""  # noqa: S608 - constants only


class PostgresStore:
    """A database that several processes share. The methods raise psycopg.Error.

    Args:
        url: ``postgresql://user:password@host:port/database``, with any parameter of libpq.
    """

    def __init__(self, url: str) -> None:
        try:
            place = conninfo.conninfo_to_dict(url)
        except psycopg.Error as error:
            raise LedgerError(f"the ledger's URL cannot be read: {error}") from error
        self.place = f"{place.get('host', 'localhost')}:{place.get('port', 5432)}/{place.get('dbname', '')}"
        """The host and database, without credentials."""
        names = {key: place.get(key) for key in ("host", "port", "dbname", "options")}
        self.key = hashlib.sha256(repr(sorted(names.items())).encode()).hexdigest()[:16]
        """Identifies the database."""
        self._url = url
        self._pool = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=4,
            open=False,
            timeout=5.0,
            name="ledger",
            kwargs={"autocommit": True, "connect_timeout": _CONNECT_SECONDS},
        )

    async def open(self) -> None:
        """Connects, and migrates the tables to this release's version.

        Raises:
            LedgerError: The database cannot be reached or used, or a later release migrated it.
        """
        try:
            # The pool hides the reason of a failed connection.
            connecting = psycopg.AsyncConnection.connect(self._url, connect_timeout=_CONNECT_SECONDS)
            async with await connecting as connection:
                await self._migrate(connection)
            await self._pool.open()
        except psycopg.Error as error:
            raise LedgerError(f"the ledger {self.place} cannot be used: {error}") from error

    async def _migrate(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        await connection.execute("CREATE TABLE IF NOT EXISTS dramaturg_ledger (version integer NOT NULL)")
        found = await (await connection.execute("SELECT max(version) FROM dramaturg_ledger")).fetchone()
        version = (found and found[0]) or 0
        if version > SCHEMA_VERSION:
            raise LedgerError(
                f"the ledger {self.place} has version {version}; this release reads up to {SCHEMA_VERSION}"
            )
        for number, migration in enumerate(_MIGRATIONS[version:], start=version + 1):
            await connection.execute(sql.SQL(migration))
            await connection.execute("INSERT INTO dramaturg_ledger VALUES (%s)", [number])
        # A process without a row counts as dead, so the rows of dead processes are deleted.
        processes = await self._processes(connection)
        dead = {process.id for process, _ in processes} - living(processes)
        await connection.execute("DELETE FROM dramaturg_processes WHERE id = ANY(%s)", [list(dead)])

    async def close(self) -> None:
        await self._pool.close()

    async def look_up(self, fingerprints: Sequence[str]) -> Mapping[str, str]:
        """Returns the stored calls of the requests that are found, as text."""
        async with self._pool.connection() as connection:
            rows = await (await connection.execute(_LOOK_UP, [list(fingerprints)])).fetchall()
        return dict(rows)

    async def write(self, process: str, contents: Contents) -> None:
        """Writes the contents in one transaction. Of two completions of a request the later one is kept."""
        statements: list[tuple[str, list[object]]] = []
        if contents.kept:
            # All writers use the same order, which avoids deadlocks.
            kept = sorted(contents.kept.items())
            columns = [[key for key, _ in kept], [one.recorded_at for _, one in kept]]
            statements.append((_KEEP, [*columns, [one.purchases for _, one in kept]]))
        noted = [
            *((number, sent, False, False) for number, sent in contents.sent.items()),
            *((number, sent, True, False) for number, sent in contents.abandoned.items()),
            *((number, sent, False, True) for number, sent in contents.unstored.items()),
        ]
        if noted:
            rows = [(number, sent.fingerprint, sent.sent_at, *state) for number, sent, *state in noted]
            statements.append((_NOTE, [process, *(list(column) for column in zip(*rows, strict=True))]))
        if contents.settled:
            statements.append((_SETTLE, [process, list(contents.settled)]))
        async with self._pool.connection() as connection:
            if len(statements) == 1:
                await connection.execute(*statements[0])
                return
            async with connection.transaction(), connection.pipeline():
                for statement, values in statements:
                    await connection.execute(statement, values)

    async def renew(self, process: Process) -> None:
        values = [process.id, process.machine, process.pid, process.started, LEASE_SECONDS]
        async with self._pool.connection() as connection:
            await connection.execute(_RENEW, values)

    async def leave(self, process: Process) -> None:
        async with self._pool.connection() as connection:
            await connection.execute("DELETE FROM dramaturg_processes WHERE id = %s", [process.id])

    async def status(self, process: Process, *, under_way: int, unwritten: int) -> LedgerStatus:
        """Counts completions and calls.

        Args:
            process: The calling process.
            under_way: Its calls in flight; the latest are not in the database.
            unwritten: Its completions that are not yet in the database.
        """
        async with self._pool.connection() as connection:
            alive = [*living(await self._processes(connection))]
            counted = await connection.execute(_COUNTS, {"alive": alive, "own": process.id})
            completions, size, others, lost, abandoned, again = await counted.fetchone() or (0,) * 6
            listed = await (await connection.execute(_LOST, [alive, MOST_LISTED])).fetchall()
        return LedgerStatus(
            kind=LedgerKind.POSTGRESQL,
            completions=completions,
            size=size,
            processes=len(alive),
            under_way=others + under_way,
            lost=lost,
            abandoned=abandoned,
            bought_again=again,
            lost_calls=tuple(LostCall(*row) for row in listed),
            unwritten=unwritten,
        )

    async def _processes(self, connection: psycopg.AsyncConnection[Any]) -> list[tuple[Process, float]]:
        rows = await (await connection.execute(_PROCESSES)).fetchall()
        return [(Process(*process), lease_left) for *process, lease_left in rows]
