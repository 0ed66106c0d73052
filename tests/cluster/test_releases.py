"""Two releases: the services of one are rolled in while those of the other serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from functools import partial

import pytest
import pytest_asyncio

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_RUNNING, RunLimits
from dramaturg.testing import until
from tests.cluster.cluster import TWO_EACH, Cluster, Release
from tests.cluster.conftest import deployed
from tests.cluster.load import FOUND_SECONDS, RUN_SECONDS, create_run, under_load
from tests.cluster.releases import check_out
from tests.cluster.replicas import Replica
from tests.k8s.rendered import Rendering, folder, kustomize
from tests.support.postgres import PostgresServer

MANY = 1000
"""The samples of a run that outlasts all rolls."""
FURTHER = 3
"""The samples by which it is seen to go on."""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The release before, with its manifests."""
    checkout = check_out(tmp_path_factory.mktemp("before"))
    return Release(Rendering("before", kustomize(checkout / "k8s/overlays/production")), checkout)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upgraded(
    tmp_path_factory: pytest.TempPathFactory, store: PostgresServer, before: Release
) -> AsyncIterator[Cluster]:
    """The services of the release before."""
    async for made in deployed(tmp_path_factory.mktemp("releases"), store, before):
        yield made


async def test_no_call_fails_while_this_release_is_rolled_in_and_out(
    upgraded: Cluster, before: Release
) -> None:
    """A run of many samples goes on meanwhile, also where this release changed the tables."""
    async with upgraded.client() as client:
        run = await create_run(client, MANY, "long", RunLimits(max_concurrent_samples=1))
    for name, release in (("upgrade", Release(folder("overlays/production"))), ("rollback", before)):
        await roll(upgraded, name, release)
        await goes_on(upgraded, run.id)
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
