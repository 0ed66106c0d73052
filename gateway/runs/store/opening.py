"""Opens the database that a URL names."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa

from gateway.runs.store.base import StoreError
from gateway.runs.store.database import WRITES

_BUSY_SECONDS = 30
_POOL_SIZE = 8
_CONNECT_SECONDS = 5


def engine_of(url: str) -> tuple[sa.Engine, str]:
    """The connections to a database and its name in messages, without its password.

    Nothing is connected to yet.

    Raises:
        StoreError: the URL is none, or names another kind of database.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise StoreError(
            "the store of runs has an address that is no URL such as sqlite:///runs.sqlite3"
        ) from error
    name = parsed.render_as_string(hide_password=True)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.database in {None, "", ":memory:"}:
            raise StoreError(f"the store of runs {name} names no file")
        return _sqlite(parsed), name
    if backend in {"postgresql", "postgres"}:
        return _postgres(parsed), name
    raise StoreError(f"the store of runs {name} is on {backend}; SQLite and PostgreSQL are known")


def lock_file(engine: sa.Engine, name: str) -> IO[str]:
    """Locks a SQLite store for this process, by a file beside it, until what is returned is closed.

    Raises:
        StoreError: another process has it open, or the folder cannot be written to.
    """
    path = Path(f"{engine.url.database}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"the store of runs {name} cannot be used: {error}") from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held.seek(0)
        owner = held.read().strip()
        held.close()
        raise StoreError(
            f"the store of runs {name} is in use{f' by process {owner}' if owner else ''}: "
            "a SQLite file serves one gateway at a time; several share a store on PostgreSQL (postgresql://...)"
        ) from error
    held.truncate(0)
    held.write(f"{os.getpid()}\n")
    held.flush()
    return held


def _sqlite(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(
        url.set(drivername="sqlite"),
        connect_args={"check_same_thread": False, "timeout": _BUSY_SECONDS},
        pool_size=_POOL_SIZE,
        max_overflow=-1,
    )

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, record: object) -> None:
        del record
        connection.isolation_level = None  # transactions are begun below, not by the driver
        for setting in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {setting}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # A reader that became a writer would fail with SQLITE_BUSY_SNAPSHOT, which no waiting cures.
        writes = connection.get_execution_options().get(WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgres(url: sa.URL) -> sa.Engine:
    return sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={"connect_timeout": _CONNECT_SECONDS, "application_name": "dramaturg"},
        pool_size=_POOL_SIZE,
        max_overflow=0,
        pool_timeout=_BUSY_SECONDS,
        pool_recycle=1800,
    )
