"""Waits for a rate limit of a provider, as a run and the command line show them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1.run_pb2 import Dataset
from dramaturg.client import DramaturgClient
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from gateway.launch.platform import Platform
from gateway.runs.settings import RunsSettings
from tests.support.command_line import start
from tests.support.engines import lines, script_rows, scripts_spec
from tests.support.openai_server import OpenAIServer
from tests.support.scripted_model import approve

pytestmark = pytest.mark.timeout(120)

AGENTS = ("synthesize", "critic", "execute", "commonsense")
SAID = "rate-limited by p, 6 of 6 a minute, next in "


@asynccontextmanager
async def limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A gateway whose provider takes six calls a minute."""
    async with OpenAIServer(approve, models=("m",)) as server:
        configuration = folder / "dramaturg.toml"
        configuration.write_text(
            f'[generation.providers.p]\nbase_url = "{server.base_url}"\ndefault_model = "m"\n'
            "requests_per_minute = 6\n"
        )
        monkeypatch.setenv("DRAMATURG_CONFIG", str(configuration))
        monkeypatch.setenv("DRAMATURG_GENERATION_LEDGER", ":memory:")
        runs = RunsSettings(enabled=True, url=f"sqlite:///{folder}/runs.sqlite3", drain_timeout_seconds=0)
        async with (
            Platform(AGENTS, runs=runs).open() as contracts,
            Server(contracts, ServerSettings.loopback(drain_grace_seconds=0.2)) as gateway,
        ):
            yield gateway.target


async def test_a_watched_run_tells_what_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with limited(tmp_path, monkeypatch) as target, DramaturgClient(target) as client:
        assert list(await client.model_waits()) == []
        run = await client.runs.create(scripts_spec(dataset=Dataset(content=lines(script_rows(4)))))
        async for event in client.runs.watch(run.id):
            waits = [*event.run.progress.model_waits, *event.progress.model_waits]
            if waits:
                break
        await client.runs.cancel(run.id)
    (wait,) = waits
    assert wait.startswith(SAID)


async def test_the_progress_of_an_evaluation_tells_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(lines(script_rows(4)))
    async with limited(tmp_path, monkeypatch) as target:
        options = ("--target", target, "--out", tmp_path / "out")
        async with start("eval", "--kind", "scripts", rows, *options) as process:
            assert process.stderr is not None
            async with asyncio.timeout(60):
                while SAID not in (await process.stderr.readline()).decode():
                    assert process.returncode is None
            process.terminate()
            await process.wait()
