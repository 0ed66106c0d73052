"""Opens the ledger that a URL names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from services.generation.ledger.base import Ledger, LedgerError
from services.generation.ledger.processes import RENEWAL_SECONDS
from services.generation.ledger.sqlite import SqliteLedger

logger = logging.getLogger(__name__)

IN_MEMORY = ":memory:"
"""The setting that selects a ledger in memory."""
_FILE = "sqlite:///"
_DATABASE = ("postgresql://", "postgres://", "postgresql+psycopg://")
_FORMS = "sqlite:///PATH (four slashes for an absolute one), sqlite:// (in memory) or postgresql://..."


def is_ledger_url(url: str) -> bool:
    """Whether the URL names a ledger: sqlite:///PATH, sqlite:// (in memory) or postgresql://..."""
    return url == "sqlite://" or url.startswith((_FILE, *_DATABASE))


@asynccontextmanager
async def open_ledger(url: str, spools: Path) -> AsyncIterator[Ledger]:
    """Opens a ledger, renews this process's lease, and closes the ledger at the end.

    Args:
        url: ``sqlite:///PATH``, ``sqlite://`` (in memory) or ``postgresql://...``.
        spools: The folder for completions that are not yet in PostgreSQL.

    Raises:
        LedgerError: The store cannot be used; the message names the store and the reason.
    """
    ledger, beat = await _open(url, spools)
    beating = asyncio.create_task(_keep_beating(beat))
    try:
        yield ledger
    finally:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
        await ledger.close()


async def _open(url: str, spools: Path) -> tuple[Ledger, Callable[[], Awaitable[None]]]:
    if url.startswith(_DATABASE):
        # Imported only where PostgreSQL is used.
        from services.generation.ledger.postgres import PostgresLedger

        shared = await PostgresLedger.open(url.replace("postgresql+psycopg://", "postgresql://", 1), spools)
        return shared, shared.beat
    if not is_ledger_url(url):
        raise LedgerError(f"the ledger's URL must be {_FORMS}")
    file = SqliteLedger(_file(url))

    return file, file.beat


def _file(url: str) -> Path | None:
    path = url.removeprefix(_FILE) if url.startswith(_FILE) else IN_MEMORY
    return None if path in {"", IN_MEMORY} else Path(path).expanduser()


async def _keep_beating(beat: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(RENEWAL_SECONDS)
        try:
            await beat()
        except Exception as error:  # any error: the next beat may succeed
            logger.warning("the ledger's lease could not be renewed: %s", error)
