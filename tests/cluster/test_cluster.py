"""The services as the manifests declare them, in one cluster: evaluated with, rolled, and renewed."""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_SUCCEEDED, Run
from dramaturg.client import DramaturgClient
from dramaturg.service.channel import open_channel
from dramaturg.testing import until
from tests.cluster.cluster import TWO_EACH, Cluster
from tests.cluster.load import FOUND_SECONDS, RUN_SECONDS, create_run, failure, under_load
from tests.cluster.replicas import Replica
from tests.support.certificates import Authority


async def ended(client: DramaturgClient, run: Run) -> Run:
    async with asyncio.timeout(RUN_SECONDS):
        async for _ in client.runs.watch(run.id):
            pass
        return await client.runs.get(run.id)


async def test_an_evaluation_and_a_run_pass(cluster: Cluster) -> None:
    async with cluster.client() as client:
        assert not await failure(client, "first")
        run = await ended(client, await create_run(client, 10, "run"))
    assert run.state == RUN_STATE_SUCCEEDED, run
    assert (run.progress.succeeded_count, run.progress.failed_count) == (10, 0)
    assert not await cluster.dead()


async def test_who_has_nothing_to_show_is_not_served(cluster: Cluster) -> None:
    """The gateway asks for a token, every other service for a certificate."""
    async with cluster.client(token=False) as client:
        assert (await failure(client, "nobody")).startswith("UNAUTHENTICATED")
    (critic, _) = cluster.deployments["critic"].replicas
    async with open_channel(critic.target, cluster.stranger("critic")) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await HealthStub(channel).Check(HealthCheckRequest(), timeout=15)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_no_call_fails_while_every_service_is_rolled(cluster: Cluster) -> None:
    async with cluster.client() as client:
        run = await create_run(client, 40, "rolled")
    old = set(cluster.replicas)
    async with under_load(cluster, "rolling") as report:
        await cluster.roll(TWO_EACH)
        rolled = [replica for replica in cluster.replicas if replica.pod.name in TWO_EACH]
        await until(lambda: all(replica.served for replica in rolled), FOUND_SECONDS)
    report.check()
    assert not set(rolled) & old
    async with cluster.client() as client:
        run = await ended(client, run)
    assert run.state == RUN_STATE_SUCCEEDED, run
    assert (run.progress.succeeded_count, run.progress.failed_count) == (40, 0)


async def test_replicas_take_no_more_memory_than_they_request(cluster: Cluster) -> None:
    """Those that were called and those at rest, and a gateway with the process that made a report."""
    async with cluster.client() as client:
        run = await ended(client, await create_run(client, 10, "reported"))
        report = b"".join([part async for part in client.runs.report(run.id)])
    assert b"</html>" in report
    taken = {replica.name: replica.memory_bytes for replica in cluster.replicas}
    for replica in cluster.replicas:
        requested = bytes_of(replica.pod.container["resources"]["requests"]["memory"])
        assert taken[replica.name] <= requested, replica.name
    sys.stdout.write(f"resident: { {name: value // 1_000_000 for name, value in taken.items()} } MB\n")


def bytes_of(quantity: str) -> int:
    """The number of bytes of a quantity of Kubernetes, as far as the manifests use them."""
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", quantity).groups()  # type: ignore[union-attr]
    return int(number) << {"Mi": 20, "Gi": 30}[unit]


async def test_no_call_fails_while_the_authority_is_replaced(cluster: Cluster) -> None:
    old, new = cluster.authority, cluster.new_authority("renewed")
    steps: Sequence[Mapping[str, Any]] = ({"trusted": [old, new]}, {"issuer": new}, {"trusted": [new]})
    async with under_load(cluster, "renewal") as report:
        for step in steps:
            await cluster.rotate(**step)
            # A site pauses until every pod has its files. Here they have them at once, and the pause is for
            # handshakes under way and for calls between two steps.
            await asyncio.sleep(3)
    report.check()
    shown = await asyncio.gather(*(shows(replica, new) for replica in cluster.replicas))
    assert all(shown)
    assert not await cluster.dead()


async def shows(replica: Replica, authority: Authority) -> bool:
    """Whether a replica shows a certificate of this authority in the name of its service."""
    context = ssl.create_default_context(cafile=authority.certificate)
    context.set_alpn_protocols(["h2"])
    host, _, port = replica.target.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(
            host, int(port), ssl=context, server_hostname=replica.pod.name
        )
    except ssl.SSLCertVerificationError:
        return False
    writer.close()
    return True
