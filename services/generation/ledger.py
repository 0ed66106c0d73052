"""The ledger of completions: what was bought is never bought again."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from services.generation.calls import Purchase
from services.generation.records import kept_purchase_from_record, purchase_to_record

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS completions (
  fingerprint TEXT PRIMARY KEY,
  recorded_at REAL NOT NULL, -- seconds since 1970 in UTC
  purchases TEXT NOT NULL    -- JSON list: the calls that led to a usable answer, in order
) STRICT
"""


class LedgerError(RuntimeError):
    """The ledger cannot be opened; the message names the file and the reason."""


class Ledger(Protocol):
    """Keeps, under the fingerprint of a request, the calls that led to a usable answer.

    Whoever buys must have looked before, and must put what was bought before anything else is done with it.
    """

    async def get(self, fingerprint: str) -> tuple[Purchase, ...]:
        """The calls kept for the request, marked as cached. Empty: none are kept."""

    async def put(self, fingerprint: str, purchases: Sequence[Purchase]) -> None:
        """Keeps the calls, in place of any kept before. Raises OSError where the store fails."""

    async def close(self) -> None:
        """Closes the store."""


class SqliteLedger(Ledger):
    """A ledger in one SQLite file, or in memory.

    Reads and writes happen in the tick of the event loop that asks for them, tens of microseconds each: so no
    completion is ever received and not yet durable while other work goes on. With ``synchronous=NORMAL``
    in WAL mode a commit survives the death of the process; the last ones before a power loss may be lost,
    and the file stays sound (SQLite documentation, "Write-Ahead Logging").
    """

    def __init__(self, path: Path | None) -> None:
        """Opens or creates the file; None keeps the ledger in memory.

        Raises:
            LedgerError: the file cannot be written, is no ledger, or is of another version.
        """
        where = ":memory:" if path is None else str(path)
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(where, isolation_level=None, timeout=5.0)
            self._prepare(where)
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"the ledger {where} cannot be used: {error}") from error

    def _prepare(self, where: str) -> None:
        run = self._connection.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=NORMAL")
        (version,) = run("PRAGMA user_version").fetchone()
        if version not in {0, SCHEMA_VERSION}:
            raise LedgerError(f"the ledger {where} has version {version}, not {SCHEMA_VERSION}")
        run(_SCHEMA)
        run(f"PRAGMA user_version={SCHEMA_VERSION}")

    async def get(self, fingerprint: str) -> tuple[Purchase, ...]:
        """The calls kept for the request, marked as cached. Empty: none are kept."""
        row = self._connection.execute(
            "SELECT purchases FROM completions WHERE fingerprint = ?", (fingerprint,)
        ).fetchone()
        return () if row is None else tuple(map(kept_purchase_from_record, json.loads(row[0])))

    async def put(self, fingerprint: str, purchases: Sequence[Purchase]) -> None:
        """Keeps the calls. Raises OSError where the file cannot be written, such as on a full disk."""
        records = [purchase_to_record(purchase) for purchase in purchases]
        text = json.dumps(records, ensure_ascii=False, separators=(",", ":"))
        try:
            self._connection.execute(
                "INSERT OR REPLACE INTO completions VALUES (?, ?, ?)", (fingerprint, time.time(), text)
            )
        except sqlite3.Error as error:
            raise OSError(f"the ledger could not keep a completion: {error}") from error

    async def close(self) -> None:
        """Closes the file."""
        self._connection.close()
