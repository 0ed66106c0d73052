"""What an undisturbed run finds, found once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fleet import SUCCEEDED, comparable, fleet

SAMPLES = 300
_found: list[list[bytes]] = []


@pytest.fixture
async def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The samples of an undisturbed run of SAMPLES tasks, comparable."""
    if not _found:
        folder = tmp_path_factory.mktemp("undisturbed")
        async with fleet(folder, f"sqlite:///{folder / 'runs.sqlite3'}") as made:
            run = await made.ended(await made.create(SAMPLES))
            assert run.state == SUCCEEDED, run
            assert not made.bought_twice()
            _found.append(comparable(await made.samples(run.id)))
    return _found[0]


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'runs.sqlite3'}"
    url: str = request.getfixturevalue("postgres_url")
    return url
