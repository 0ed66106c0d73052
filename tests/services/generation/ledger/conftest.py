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
    """A limit of the pages of a SQLite file, as a full disk has it, for all connections that are used."""

    def __init__(self) -> None:
        self._pages: int | None = None

    def set(self, path: Path) -> None:
        """Lets the file take no further page."""
        with closing(sqlite3.connect(path)) as connection:
            (self._pages,) = connection.execute("PRAGMA page_count").fetchone()

    def lift(self) -> None:
        """Lets the file grow again."""
        self._pages = 1_000_000

    def apply(self, connection: sa.Connection) -> None:
        if self._pages is not None:
            connection.exec_driver_sql(f"PRAGMA max_page_count={self._pages}")


@pytest.fixture
def page_limit() -> Iterator[PageLimit]:
    limit = PageLimit()
    sa.event.listen(sa.Engine, "begin", limit.apply)
    yield limit
    sa.event.remove(sa.Engine, "begin", limit.apply)
