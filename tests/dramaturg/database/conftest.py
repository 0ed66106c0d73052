"""Empty databases of both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dramaturg.database.database import Database, create_engine


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/database.sqlite3"
    else:
        url = request.getfixturevalue("postgres_url")
    opened = Database(*create_engine(url), retry_seconds=5)
    yield opened
    opened.close()
