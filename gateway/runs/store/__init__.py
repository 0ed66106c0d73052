"""Keeps runs, on SQLite or PostgreSQL."""

from __future__ import annotations

from gateway.runs.store.base import RequestIdReusedError, RunStore, StoreError
from gateway.runs.store.database import Database
from gateway.runs.store.migrations import migrate
from gateway.runs.store.opening import engine_of, lock_file
from gateway.runs.store.sql import SqlRunStore

__all__ = ["RequestIdReusedError", "RunStore", "StoreError", "open_store"]

PATIENCE_SECONDS = 5.0


def open_store(url: str, *, timeouts: float = PATIENCE_SECONDS) -> RunStore:
    """Opens a store; creates or upgrades its tables where that is due.

    Blocks: call it in a thread. So do the store's methods, which any number of threads may call.

    Args:
        url: ``sqlite:///folder/runs.sqlite3`` (four slashes before an absolute path), for one process at a
            time, or ``postgresql://user@host/database``, for any number.
        timeouts: For how many seconds a transaction is tried again whose connection was lost.

    Raises:
        StoreError: it cannot be reached or written to, another process has the file open, or a newer program
            wrote it. The message names the store, without its password.
    """
    engine, name = engine_of(url)
    database = Database(engine, name, timeouts)
    held = lock_file(engine, name) if database.is_sqlite else None
    try:
        migrate(database)
    except BaseException:
        database.close()
        if held is not None:
            held.close()
        raise
    return SqlRunStore(database, held)
