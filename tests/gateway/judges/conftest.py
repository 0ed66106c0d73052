from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.sqlite3"


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    """The address of an empty store."""
    address: str = sqlite_url if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    return address
