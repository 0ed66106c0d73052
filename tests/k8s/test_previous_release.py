"""The release before, on the tables of this one: it serves beside it, and alone after a rollback."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_SUCCEEDED
from dramaturg.client import DramaturgClient
from gateway.runs.store.tables import SCHEMA
from tests.cluster.releases import check_out
from tests.k8s.processes import ADDRESS, bare, caller, started
from tests.k8s.rendered import ROOT, render
from tests.k8s.test_migration import DATABASES, completed, migrated, spec
from tests.support.postgres import run_postgres

BESIDE = f"{ADDRESS.rpartition('.')[0]}.2"
"""The address of this release, beside the one before."""
CLIENT = """
import asyncio, sys
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.client import DramaturgClient
from dramaturg.service.settings import ChannelSettings
from gateway.runs.store.tables import SCHEMA

async def main(target, token):
    settings = ChannelSettings(token_file=token, token_over_plain_text=True)
    async with DramaturgClient(target, settings) as client:
        run = await client.runs.create(RunSpec.FromString(sys.stdin.buffer.read()))
        async for event in client.runs.watch(run.id):
            if event.HasField("run"):
                run = event.run
    print(SCHEMA.head, run.state)

asyncio.run(main(*sys.argv[1:]))
"""
"""A client of the release before: creates a run and follows it."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The code of the release before."""
    return check_out(tmp_path)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    """A database with the tables of this release."""
    (tmp_path / "migration").mkdir()
    with run_postgres() as server:
        url = server.create_database()
        done = migrated(url, tmp_path / "migration")
        assert done.returncode == 0, done.stdout + done.stderr
        yield url


@pytest.mark.slow
async def test_the_release_before_serves_on_the_tables_of_this_one(
    checkout: Path, database: str, tmp_path: Path
) -> None:
    """Beside it and after a rollback. Each reads the runs of the other, and clients of both are served."""
    (tmp_path / "new").mkdir()
    (tmp_path / "old").mkdir()
    async with served(tmp_path / "old", database, ADDRESS, checkout) as old:
        async with served(tmp_path / "new", database, BESIDE, ROOT) as new:
            runs = [await completed(old), await completed(new)]
            assert {run.state for run in runs} == {RUN_STATE_SUCCEEDED}
            head, state = await older_client(checkout, f"{BESIDE}:50051", tmp_path / "new" / "token")
            assert head != SCHEMA.head
            assert int(state) == RUN_STATE_SUCCEEDED
            for client in (old, new):
                for run in runs:
                    assert (await client.runs.get(run.id)).progress.succeeded_count == 1
        assert (await completed(old)).state == RUN_STATE_SUCCEEDED


@asynccontextmanager
async def served(place: Path, url: str, address: str, checkout: Path) -> AsyncIterator[DramaturgClient]:
    """A release in the size ``single`` on the database, by its code; yields a client of this release."""
    rendering = render(
        {"size": "single", "store": {"type": "postgres", "caSecret": {"name": ""}}, "backend": "offline"}
    )
    variables = {**dict.fromkeys(DATABASES, url), "PYTHONPATH": str(checkout)}
    async with started(rendering, place, variables, address=address), caller(place, address) as client:
        yield client


async def older_client(checkout: Path, target: str, token: Path) -> list[str]:
    """What a client of the release before says: the revision that it knows, and the state of its run."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT, target, str(token)),
        env=bare(checkout, PYTHONPATH=str(checkout)),
        cwd=checkout,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await asyncio.wait_for(process.communicate(spec().SerializeToString()), 60)
    return said.decode().split()
