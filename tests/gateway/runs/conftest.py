"""Stores on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.runs.store import RunStore, open_store


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.sqlite3"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def store(store_url: str) -> Iterator[RunStore]:
    """An empty store, on each database."""
    opened = open_store(store_url)
    yield opened
    opened.close()
