"""The release before, on the tables of this one: it serves beside it, and alone after a rollback.

Before there are tags it is the newest commit without the newest revision of the tables.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_SUCCEEDED, Run
from dramaturg.client import DramaturgClient
from dramaturg.service.settings import ChannelSettings
from gateway.runs.store.tables import SCHEMA
from tests.cluster.releases import check_out, previous_tag
from tests.k8s.processes import ADDRESS, started, wait_until_ready
from tests.k8s.rendered import ROOT, render
from tests.k8s.test_migration import DATABASES, migrated, spec
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
    return check_out(previous_tag() or _before_the_newest_revision(), tmp_path)


def _before_the_newest_revision() -> str:
    """The newest commit that has the revision before and lacks the newest one."""
    newest, before = (
        next(SCHEMA.revisions.glob(f"r{int(SCHEMA.head) - back:04}_*.py")).relative_to(ROOT)
        for back in (0, 1)
    )
    commits = git("rev-list", "HEAD").split()
    asked = "\n".join(f"{commit}:{file}" for commit in commits for file in (newest, before))
    there = [
        not line.endswith("missing") for line in git("cat-file", "--batch-check", asked=asked).splitlines()
    ]
    found = zip(commits, there[::2], there[1::2], strict=True)
    commit = next((commit for commit, has_newest, has_before in found if has_before and not has_newest), "")
    if not commit:
        pytest.skip("this clone lacks the commits before the newest revision of the tables")
    return commit


def git(*arguments: str, asked: str = "") -> str:
    """What git says."""
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, input=asked, capture_output=True, text=True, check=True
    ).stdout


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
            runs = [await evaluated(old), await evaluated(new)]
            assert {run.state for run in runs} == {RUN_STATE_SUCCEEDED}
            head, state = await older_client(checkout, f"{BESIDE}:50051", tmp_path / "new" / "token")
            assert head != SCHEMA.head
            assert int(state) == RUN_STATE_SUCCEEDED
            for client in (old, new):
                for run in runs:
                    assert (await client.runs.get(run.id)).progress.succeeded_count == 1
        assert (await evaluated(old)).state == RUN_STATE_SUCCEEDED


@asynccontextmanager
async def served(place: Path, url: str, address: str, checkout: Path) -> AsyncIterator[DramaturgClient]:
    """A release in the size ``single`` on the database, by its code; yields a client of this release."""
    rendering = render(
        {"size": "single", "store": {"type": "postgres", "caSecret": {"name": ""}}, "backend": "offline"}
    )
    variables = {**dict.fromkeys(DATABASES, url), "PYTHONPATH": str(checkout)}
    async with started(rendering, place, variables, address=address) as (replica, process):
        await wait_until_ready(replica, process)
        settings = ChannelSettings(token_file=place / "token", token_over_plain_text=True)
        async with DramaturgClient(f"{address}:50051", settings) as client:
            yield client


async def evaluated(client: DramaturgClient) -> Run:
    """A run without a model, followed to its end."""
    run = await client.runs.create(spec())
    async for event in client.runs.watch(run.id):
        if event.HasField("run"):
            run = event.run
    return run


async def older_client(checkout: Path, target: str, token: Path) -> list[str]:
    """What a client of the release before says: the revision that it knows, and the state of its run."""
    environment: Mapping[str, str] = {"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT, target, str(token)),
        env=environment,
        cwd=checkout,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await asyncio.wait_for(process.communicate(spec().SerializeToString()), 60)
    return said.decode().split()
