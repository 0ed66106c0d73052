"""Two releases: the services of one are rolled in while those of the other serve."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from functools import partial

import psycopg
import pytest
import pytest_asyncio

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_RUNNING, RunLimits
from dramaturg.testing import until
from tests.cluster.cluster import TWO_EACH, Cluster, Release
from tests.cluster.conftest import deployed
from tests.cluster.load import FOUND_SECONDS, under_load
from tests.cluster.releases import previous
from tests.cluster.replicas import Replica
from tests.cluster.runs import RUN_SECONDS, create_run
from tests.k8s.charts import production
from tests.k8s.rendered import ROOT, folder
from tests.support.postgres import PostgresServer

MANY = 1000
"""The samples of a run that outlasts all rolls."""
FURTHER = 3
"""The samples by which it is seen to go on."""


@pytest.fixture(scope="module", params=["previous", "chart"])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The previous release, or this one configured by the chart and not by kustomize."""
    return (
        previous(tmp_path_factory.mktemp("previous"))
        if request.param == "previous"
        else Release(production())
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upgraded(
    tmp_path_factory: pytest.TempPathFactory, store: PostgresServer, other: Release
) -> AsyncIterator[Cluster]:
    """The services of the other release."""
    async for made in deployed(tmp_path_factory.mktemp("releases"), store, other):
        yield made


async def test_no_call_fails_while_another_release_is_rolled_in_and_out(
    upgraded: Cluster, store: PostgresServer, other: Release
) -> None:
    """A run of many samples goes on meanwhile.

    Back only where the tables did not change: an older release refuses newer tables.
    """
    async with upgraded.client() as client:
        run = await create_run(client, MANY, "long", RunLimits(max_concurrent_samples=1))
    before = tables(store)
    await roll(upgraded, "upgrade", Release(folder("overlays/production")))
    await goes_on(upgraded, run.id)
    if tables(store) == before:
        await roll(upgraded, "rollback", other)
        await goes_on(upgraded, run.id)
    else:
        assert other.checkout != ROOT, "the tables changed within one release"
        sys.stdout.write("the tables changed: no rollback\n")
    assert not await upgraded.dead()


async def goes_on(cluster: Cluster, run_id: str) -> None:
    """Waits until gateways that were just rolled in have completed further samples of a run."""
    async with cluster.client() as client, asyncio.timeout(RUN_SECONDS):
        begun = (await client.runs.get(run_id)).progress.succeeded_count
        async with aclosing(client.runs.watch(run_id)) as events:
            async for event in events:
                if event.progress.succeeded_count >= begun + FURTHER:
                    break
        run = await client.runs.get(run_id)
    assert run.state == RUN_STATE_RUNNING, run
    assert not run.progress.failed_count, run


async def roll(cluster: Cluster, name: str, release: Release) -> None:
    """Replaces the services of an evaluation under load. No call may fail."""
    old = set(cluster.replicas)
    async with under_load(cluster, name) as report:
        await cluster.roll(TWO_EACH, release)
        rolled = [replica for replica in cluster.replicas if replica.pod.name in TWO_EACH]
        await until(partial(all_served, rolled), FOUND_SECONDS)
    report.check()
    assert not set(rolled) & old
    assert {replica.checkout for replica in rolled} == {release.checkout}


def all_served(replicas: Sequence[Replica]) -> bool:
    """Whether each has answered calls."""
    return all(replica.served for replica in replicas)


def tables(store: PostgresServer) -> list[tuple[object, ...]]:
    """The columns of all tables of the newest database."""
    query = """
        SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns
        WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2, 3
    """
    with psycopg.connect(store.url()) as connection:
        found = connection.execute(
            "SELECT datname FROM pg_database WHERE datname LIKE 'test_%' ORDER BY oid DESC"
        ).fetchone()
    assert found is not None
    with psycopg.connect(store.url(found[0])) as connection:
        return list(connection.execute(query).fetchall())
