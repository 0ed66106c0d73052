"""The run store, on SQLite or PostgreSQL."""

from __future__ import annotations

from functools import cache

from gateway.runs.store.base import (
    DatasetOffsetError,
    DatasetQuotaError,
    JudgeInUseError,
    JudgeMissingError,
    RequestIdReusedError,
    RunStore,
)

__all__ = [
    "DatasetOffsetError",
    "DatasetQuotaError",
    "JudgeInUseError",
    "JudgeMissingError",
    "RequestIdReusedError",
    "RunStore",
    "open_reader",
    "open_store",
]

RETRY_SECONDS = 5.0


def open_store(url: str, *, retry_seconds: float = RETRY_SECONDS) -> RunStore:
    """Opens a store, and creates or upgrades its tables.

    Blocks, as do all methods of the store, which are thread-safe.

    Args:
        url: ``sqlite:///folder/runs.sqlite3`` (four slashes before an absolute path), for one process at a
            time, or ``postgresql://user@host/database``, for any number.
        retry_seconds: How long a transaction is retried whose connection was lost.

    Raises:
        StoreError: The store is unreachable or not writable, another process has the file open, or a newer
            program wrote it. The message names the store, without its password.
    """
    # SQLAlchemy takes longer to import than most commands, which need the store's errors alone.
    from dramaturg.database.database import Database, create_engine, lock_file
    from gateway.runs.store.migrations import migrate
    from gateway.runs.store.sql_store import SqlRunStore

    engine, name = create_engine(url)
    database = Database(engine, name, retry_seconds)
    lock = lock_file(engine, name) if database.is_sqlite else None
    try:
        migrate(database)
    except BaseException:
        database.close()
        if lock is not None:
            lock.close()
        raise
    return SqlRunStore(database, lock)


@cache
def open_reader(url: str) -> RunStore:
    """A store that another process has opened, to read from it. Opened once in a process and never closed."""
    from dramaturg.database.database import Database, create_engine
    from gateway.runs.store.sql_store import SqlRunStore

    return SqlRunStore(Database(*create_engine(url), RETRY_SECONDS))
