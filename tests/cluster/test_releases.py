"""Two releases: the services of one are rolled in while those of the other serve."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio

from dramaturg.testing import until
from tests.cluster.cluster import TWO_EACH, Cluster, Release
from tests.cluster.conftest import deployed
from tests.cluster.load import FOUND_SECONDS, under_load
from tests.cluster.replicas import Replica
from tests.k8s.charts import production
from tests.k8s.rendered import Rendering, folder, kustomize
from tests.support.postgres import PostgresServer

PREVIOUS = "DRAMATURG_TEST_PREVIOUS"


def previous() -> Release:
    """The release that is upgraded from.

    DRAMATURG_TEST_PREVIOUS names a checkout of it, with its stubs. Without one, this release stands for it,
    configured by the chart and not by kustomize.
    """
    if checkout := os.environ.get(PREVIOUS):
        place = Path(checkout)
        return Release(Rendering(checkout, kustomize(place / "k8s/overlays/production")), place)
    return Release(production())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upgraded(tmp_path_factory: pytest.TempPathFactory, store: PostgresServer) -> AsyncIterator[Cluster]:
    """The services of the previous release."""
    async for made in deployed(tmp_path_factory.mktemp("releases"), store, previous()):
        yield made


async def test_no_call_fails_while_another_release_is_rolled_in_and_out(
    upgraded: Cluster, store: PostgresServer
) -> None:
    """Back only where the tables did not change: an older release refuses newer tables."""
    before = tables(store)
    await roll(upgraded, "upgrade", Release(folder("overlays/production")))
    if tables(store) == before:
        await roll(upgraded, "rollback", previous())
    else:
        assert os.environ.get(PREVIOUS), "the tables changed within one release"
    assert not await upgraded.dead()


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
