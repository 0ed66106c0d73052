"""Stores of runs that are empty and have their tables: to make those takes longer than most tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dbos import DBOS

from gateway.runs.store import open_store
from tests.support.postgres import PostgresServer


def _migrate(url: str, engine_url: str) -> None:
    open_store(url).close()
    DBOS.migrate(engine_url)


@pytest.fixture(scope="session")
def migrated_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the database files of SQLite that a gateway has."""
    folder = tmp_path_factory.mktemp("store")
    _migrate(f"sqlite:///{folder}/runs.sqlite3", f"sqlite:///{folder}/runs-engine.sqlite3")
    return folder


@pytest.fixture(scope="session")
def migrated_database(postgres_server: PostgresServer) -> str:
    """The address of a database of PostgreSQL that a gateway has."""
    url = postgres_server.create_database()
    _migrate(url, url)
    return url


@pytest.fixture
def sqlite_url(migrated_folder: Path, tmp_path: Path) -> str:
    """The address of an empty store on SQLite."""
    for file in migrated_folder.iterdir():
        shutil.copy(file, tmp_path)
    return f"sqlite:///{tmp_path}/runs.sqlite3"


@pytest.fixture
def postgres_store_url(postgres_server: PostgresServer, migrated_database: str) -> Iterator[str]:
    """The address of an empty store on PostgreSQL, dropped after the test."""
    url = postgres_server.create_database(template=migrated_database)
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def each_store_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, for what rests on the database."""
    return _url(request)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def store_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, for what should not rest on the database: the second one is slow."""
    return _url(request)


def _url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_store_url")
    return url
