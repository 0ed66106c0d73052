"""The pods of the sizes that serve several services, as processes that are configured by their manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.client import DramaturgClient
from dramaturg.service.channel import open_channel
from dramaturg.service.settings import ChannelSettings
from tests.k8s.configured import load_judges
from tests.k8s.processes import ADDRESS, started, wait_until_ready
from tests.k8s.rendered import folder, render


@pytest.mark.slow
async def test_one_pod_has_a_judge_for_every_role(tmp_path: Path) -> None:
    rendering = render({"size": "single", "backend": "offline"})
    ledger = {"DRAMATURG_GENERATION_LEDGER_URL": f"sqlite:///{tmp_path}/completions.sqlite3"}
    async with started(rendering, tmp_path, ledger) as (replica, process):
        await wait_until_ready(replica, process)
        settings = ChannelSettings(token_file=tmp_path / "token", token_over_plain_text=True)
        async with DramaturgClient(f"{ADDRESS}:50051", settings) as client:
            judges = {(judge.role, judge.name) for judge in await client.list_judges()}
    assert {("critic", "offline"), ("graph", "built-in"), ("embedding", "built-in")} <= judges


@pytest.mark.slow
async def test_a_group_serves_each_judge_at_the_address_that_the_gateway_has(tmp_path: Path) -> None:
    rendering = folder("standard")
    targets = {judge.role: judge.target for judge in load_judges(rendering, tmp_path).judges}
    async with started(rendering, tmp_path, {}, name="agents") as (replica, process):
        await wait_until_ready(replica, process)
        for role in ("synthesize", "critic", "execute", "commonsense"):
            host, _, port = targets[role].partition(":")
            assert host == "agents"
            async with open_channel(f"{ADDRESS}:{port}") as channel:
                found = await IdentityServiceStub(channel).GetIdentity(GetIdentityRequest())
            assert role in found.identity.name
