from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty ledger, on each kind of store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'new folder' / 'ledger.sqlite3'}"
    address: str = request.getfixturevalue("postgres_url")
    return address


class PageLimit:
    """A limit of the pages of a SQLite file, as a full disk has it, for all connections."""

    def __init__(self) -> None:
        self._connections: list[sqlite3.Connection] = []

    def set(self, path: Path) -> None:
        """Lets the file take no further page."""
        with closing(sqlite3.connect(path)) as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
        self._limit(pages)

    def lift(self) -> None:
        """Lets the file grow again."""
        self._limit(1_000_000)

    def know(self, connection: sqlite3.Connection, record: object) -> None:
        del record
        self._connections.append(connection)

    def _limit(self, pages: int) -> None:
        for connection in self._connections:
            connection.execute(f"PRAGMA max_page_count={pages}")


@pytest.fixture
def page_limit() -> Iterator[PageLimit]:
    limit = PageLimit()
    sa.event.listen(sa.pool.Pool, "connect", limit.know)
    yield limit
    sa.event.remove(sa.pool.Pool, "connect", limit.know)
