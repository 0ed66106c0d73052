"""A whole platform whose model provider fails: how often it is called, and how the run ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, Run
from dramaturg.client import DramaturgClient
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from gateway.launch.platform import Platform
from gateway.runs.settings import RunsSettings
from tests.support.engines import lines, script_rows, scripts_spec
from tests.support.openai_server import Answer, Body, OpenAIServer

pytestmark = pytest.mark.timeout(180)

AGENTS = ("synthesize", "critic", "execute", "commonsense")
MAX_CALLS = 12
PROVIDER = """
[generation.providers.p]
base_url = "{url}"
default_model = "m"
[generation.providers.p.retries]
first_wait_seconds = 0.01
longest_wait_seconds = 0.01
"""


@asynccontextmanager
async def platform(
    server: OpenAIServer, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> AsyncIterator[DramaturgClient]:
    """A platform whose retries wait for no time, so that only their number bounds them."""
    configuration = folder / "dramaturg.toml"
    configuration.write_text(PROVIDER.format(url=server.base_url))
    monkeypatch.setenv("DRAMATURG_CONFIG", str(configuration))
    monkeypatch.setenv("DRAMATURG_GENERATION_LEDGER", ":memory:")
    runs = RunsSettings(
        enabled=True, url=f"sqlite:///{folder}/runs.sqlite3", drain_timeout_seconds=1, **settings
    )
    async with (
        Platform(AGENTS, runs=runs).open() as contracts,
        Server(contracts, ServerSettings.loopback(drain_grace_seconds=1)) as gateway,
        DramaturgClient(gateway.target) as client,
    ):
        yield client


async def ended(client: DramaturgClient, count: int) -> Run:
    created = await client.runs.create(scripts_spec(dataset=Dataset(content=lines(script_rows(count)))))
    async for event in client.runs.watch(created.id):
        if event.run.outcome:
            break
    return await client.runs.get(created.id)


def broken(_: Body) -> Answer:
    return Answer("the model server is out of memory", status=500)


async def test_a_provider_that_fails_for_ever_is_called_twelve_times_for_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        OpenAIServer(broken) as server,
        platform(server, tmp_path, monkeypatch, outage_timeout_seconds=5) as client,
    ):
        run = await ended(client, 1)
        calls = len(server.requests)
    assert 0 < calls <= MAX_CALLS
    assert (run.state, run.outcome) == (run_pb2.RUN_STATE_FAILED, run_pb2.RUN_OUTCOME_NOTHING_JUDGED)
    assert "the model server is out of memory" in run.state_reason


async def test_a_provider_that_fails_for_ever_pauses_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        OpenAIServer(broken) as server,
        platform(server, tmp_path, monkeypatch, outage_timeout_seconds=0) as client,
    ):
        run = await ended(client, 100)
        calls = len(server.requests)
        assert (run.state, run.outcome) == (run_pb2.RUN_STATE_PAUSED, run_pb2.RUN_OUTCOME_HALTED)
        assert "the model server is out of memory" in run.state_reason
        assert calls <= MAX_CALLS * (run.progress.succeeded_count + run.progress.running_count)
        await client.runs.cancel(run.id)
