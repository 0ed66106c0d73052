"""Two tenants of one platform, by every way from the gateway to the model: each buys for itself.

The gateway alone asks who calls, as with ``dramaturg up``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_SUCCEEDED, Dataset
from dramaturg.client import DramaturgClient
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.service.server import Server
from dramaturg.service.settings import ChannelSettings, ServerSettings
from gateway.launch.platform import Platform
from gateway.proxy import ROLE_METADATA
from gateway.runs.settings import RunsSettings
from tests.support.auth import channel_of, holder, token_settings
from tests.support.engines import lines, scripts_spec
from tests.support.gateway import scripts_request
from tests.support.judges import STEPS, TASK, candidate
from tests.support.openai_server import OpenAIServer
from tests.support.scripted_model import approve

AGENTS = ("synthesize", "critic", "execute", "commonsense")
CALLS = len(AGENTS)
"""How many calls a script with one candidate takes."""
TENANTS = {name: holder(name, "evaluator") for name in ("team-a", "team-b")}


@dataclass(frozen=True)
class House:
    """The platform as its tenants have it."""

    target: str
    folder: Path
    model: OpenAIServer

    def client(self, tenant: str) -> DramaturgClient:
        """A client with the tenant's token."""
        file = self.folder / f"{tenant}.token"
        file.write_text(TENANTS[tenant].token)
        return DramaturgClient(self.target, ChannelSettings(token_file=file))

    def bought(self) -> int:
        """The requests with messages; those without check a model and buy nothing."""
        return sum(bool(request.body["messages"]) for request in self.model.requests)

    async def evaluate(self, tenant: str) -> Usage:
        """Evaluates a script; what it cost."""
        async with self.client(tenant) as client:
            events = [event async for event in client.evaluate_scripts(scripts_request(1))]
        return events[-1].result.usage

    async def run(self, tenant: str) -> Usage:
        """Evaluates the same script in a run; what it cost."""
        async with self.client(tenant) as client, asyncio.timeout(60):
            spec = scripts_spec(dataset=Dataset(content=lines([scripts_request(1)])))
            created = await client.runs.create(spec)
            async for _ in client.runs.watch(created.id):
                pass
            run = await client.runs.get(created.id)
        assert run.state == RUN_STATE_SUCCEEDED, run
        return run.progress.usage

    async def ask_critic(self, tenant: str) -> Usage:
        """Asks the critic through the gateway; what it cost."""
        async with channel_of(self.target, self.folder, TENANTS[tenant]) as channel:
            request = judge_request(TASK, [candidate(*STEPS)])
            metadata = [(ROLE_METADATA, "critic")]
            assessment = await judge_one(channel, request, timeout=20, metadata=metadata)
        return assessment.provenance.usage


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    runs = RunsSettings(enabled=True, url=f"sqlite:///{tmp_path}/runs.sqlite3", drain_timeout_seconds=1)
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(OpenAIServer(approve))
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        monkeypatch.setenv("MODEL", "m")
        monkeypatch.setenv("DRAMATURG_GENERATION_LEDGER", ":memory:")
        contracts = await stack.enter_async_context(Platform(AGENTS, runs=runs).open())
        auth = token_settings(tmp_path, *TENANTS.values())
        server = Server(contracts, ServerSettings.loopback(drain_grace_seconds=1), auth)
        gateway = await stack.enter_async_context(server)
        yield House(gateway.target, tmp_path, model)


def bought_and_kept(usage: Usage) -> tuple[int, int]:
    return usage.provider_call_count, usage.cache_hit_count


async def test_whichever_way_a_tenant_asks_only_its_own_is_known(house: House) -> None:
    assert bought_and_kept(await house.evaluate("team-a")) == (CALLS, 0)
    assert bought_and_kept(await house.evaluate("team-b")) == (CALLS, 0)
    assert bought_and_kept(await house.evaluate("team-a")) == (0, CALLS)
    assert bought_and_kept(await house.run("team-b")) == (0, CALLS)
    assert bought_and_kept(await house.ask_critic("team-a")) == (1, 0)
    assert bought_and_kept(await house.ask_critic("team-b")) == (1, 0)
    assert house.bought() == 2 * CALLS + 2


async def test_a_run_in_the_background_buys_for_its_tenant(house: House) -> None:
    assert bought_and_kept(await house.run("team-a")) == (CALLS, 0)
    assert bought_and_kept(await house.evaluate("team-b")) == (CALLS, 0)
    assert bought_and_kept(await house.run("team-b")) == (0, CALLS)
    assert house.bought() == 2 * CALLS
