"""A store for each kind of database."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgresql"])
def each_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store, for what rests on the database."""
    return _url(request, tmp_path)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store, for what should not rest on the database: the second one is slow."""
    return _url(request, tmp_path)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The address of an empty store on SQLite, where the database makes no difference."""
    return f"sqlite:///{tmp_path / 'runs.sqlite3'}"


def _url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'runs.sqlite3'}"
    url: str = request.getfixturevalue("postgres_url")
    return url
