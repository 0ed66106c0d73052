"""Runs whose model calls wait for batches, on a whole platform."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_BATCH_PENDING, ABSTAIN_REASON_UNSPECIFIED
from dramaturg.api.evaluation.v1 import run_pb2, scripts_pb2
from dramaturg.api.evaluation.v1.run_pb2 import (
    Dataset,
    Run,
    RunBudget,
    RunSample,
    RunSpec,
    ScriptsRunOptions,
)
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.client import DramaturgClient
from dramaturg.service import context
from dramaturg.service.context import RequestContext
from dramaturg.service.errors import ServiceError
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from gateway.launch.platform import Platform
from gateway.runs.settings import RunsSettings
from tests.support.api_imitations import KEY, Asked, ImitationServer, Said, imitate
from tests.support.engines import lines, script_rows
from tests.support.fleet import comparable
from tests.support.openai_server import OpenAIServer
from tests.support.ports import free_port
from tests.support.scripted_model import approve, judge

pytestmark = pytest.mark.timeout(120)

SAMPLES = 6
PRICES = '["*"]\nprompt = 2.0\ncompletion = 8.0\n'
SINGLE = ScriptsRunOptions(
    mechanism=scripts_pb2.MECHANISM_SINGLE_JUDGE, gold_answer_source=scripts_pb2.GOLD_ANSWER_SOURCE_POOLED
)
AGENTS = ScriptsRunOptions(mechanism=scripts_pb2.MECHANISM_AGENTS)


def answer(asked: Asked) -> Said:
    return Said(judge(asked.chat))


def _configure(table: str, folder: Path, gather: float) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "prices.toml").write_text(PRICES)
    (folder / "dramaturg.toml").write_text(
        f"[generation.batches]\ngather_seconds = {gather}\npoll_seconds = 0.1\n"
        f"[generation.providers.p]\n{table}\n"
        f'default_model = "m"\nprices = "{folder / "prices.toml"}"\n'
    )


@asynccontextmanager
async def platform(
    table: str, folder: Path, monkeypatch: pytest.MonkeyPatch, gather: float = 0.3
) -> AsyncIterator[DramaturgClient]:
    _configure(table, folder, gather)
    monkeypatch.setenv("KEY", KEY)
    monkeypatch.setenv("DRAMATURG_CONFIG", str(folder / "dramaturg.toml"))
    monkeypatch.setenv("DRAMATURG_GENERATION_LEDGER", str(folder / "ledger.sqlite3"))
    runs = RunsSettings(
        enabled=True,
        url=f"sqlite:///{folder}/runs.sqlite3",
        drain_timeout_seconds=0,
        poll_seconds=0.1,
        batch_poll_seconds=0.1,
    )
    async with (
        Platform(runs=runs).open() as contracts,
        Server(contracts, ServerSettings.loopback(drain_grace_seconds=0.2)) as gateway,
        DramaturgClient(gateway.target) as client,
    ):
        yield client


def of(server: ImitationServer) -> str:
    return f'kind = "openai"\nbase_url = "{server.base_url}/v1"\napi_key_env = "KEY"'


def spec(options: ScriptsRunOptions = SINGLE, hours: float | None = 1, **fields: Any) -> RunSpec:
    made = RunSpec(scripts=options, dataset=Dataset(content=lines(script_rows(SAMPLES))), **fields)
    if hours is not None:
        made.batch_then_live.deadline.FromNanoseconds(round(hours * 3600e9))
    return made


async def evaluated(client: DramaturgClient, made: RunSpec) -> tuple[Run, Sequence[RunSample], int]:
    """The run at its end, its samples, and the most samples that were seen waiting for batches."""
    run, most = await client.runs.create(made), 0
    while run.state in (run_pb2.RUN_STATE_PREPARING, run_pb2.RUN_STATE_RUNNING):
        most = max(most, run.progress.batch_waiting_count)
        await asyncio.sleep(0.02)
        run = await client.runs.get(run.id)
    return run, [one async for one in client.runs.samples(run.id)], most


async def test_a_caller_has_no_call_wait_for_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a caller has bought and does not come back for would count against no quota."""
    request = EvaluateScriptsRequest(
        task=Task(goal="make tea"),
        candidates=[Candidate(id="a", text="1. Boil water.\n2. Pour it.")],
        mechanism=scripts_pb2.MECHANISM_SINGLE_JUDGE,
    )
    waits = RequestContext("r", batch_until=time.time() + 3600)
    async with imitate("openai", answer) as server, platform(of(server), tmp_path, monkeypatch) as client:
        with context.scope(waits):
            events = [event async for event in client.evaluate_scripts(request)]
        assert len(server.asked) == 1
    (candidate,) = events[-1].result.candidates
    reasons = {verdict.abstain_reason for verdict in candidate.verdicts}
    assert ABSTAIN_REASON_UNSPECIFIED in reasons
    assert ABSTAIN_REASON_BATCH_PENDING not in reasons


@pytest.mark.parametrize("options", [SINGLE, AGENTS], ids=["single judge", "agents"])
async def test_a_run_by_batches_finds_what_a_live_one_finds_at_half_the_price(
    options: ScriptsRunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, port = [], free_port()
    for hours in (None, 1):
        async with (
            imitate("openai", answer, port) as server,
            platform(of(server), tmp_path / str(hours), monkeypatch) as client,
        ):
            found.append((server, *await evaluated(client, spec(options, hours))))
    (_, live, lively, none), (server, run, samples, most) = found
    assert (run.state, run.progress.succeeded_count) == (run_pb2.RUN_STATE_SUCCEEDED, SAMPLES), run
    assert comparable(samples) == comparable(lively)
    assert (none, most) == (0, SAMPLES)
    assert all(one.attempt_count == 1 for one in samples)
    assert Counter(map(str, server.asked)).most_common(1)[0][1] == 1, "a call was bought twice"
    firsts = len(server.asked) - len(server.batched)
    full = live.progress.usage
    assert run.progress.usage.provider_call_count == full.provider_call_count == len(server.asked)
    # The first call of each form is live; every call has the same token counts.
    share = (firsts + 0.5 * len(server.batched)) / len(server.asked)
    assert run.progress.usage.cost_usd == pytest.approx(share * full.cost_usd)
    assert firsts < len(server.asked) / 2


async def test_a_cancelled_run_sends_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        imitate("openai", answer) as server,
        platform(of(server), tmp_path, monkeypatch, gather=1) as client,
    ):
        run = await client.runs.create(spec())
        while not run.progress.batch_waiting_count:
            run = await client.runs.get(run.id)
        await client.runs.cancel(run.id)
        # Another run gathers and sends meanwhile.
        other = spec()
        other.dataset.content = lines(script_rows(SAMPLES + 2)[-2:])
        await evaluated(client, other)
    goals = {goal for one in server.asked for goal in re.findall(r"Make tea \d", one.messages[-1][1])}
    assert goals == {"Make tea 6", "Make tea 7"}


async def test_a_run_that_cannot_wait_for_batches_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        OpenAIServer(approve, models=("m",)) as server,
        platform(f'base_url = "{server.base_url}"', tmp_path, monkeypatch) as client,
    ):
        for made, said in (
            (spec(), "has models whose provider has no batch API here: p/m"),
            (spec(budget=RunBudget(max_cost_usd=1)), "cannot be kept with batch_then_live"),
            (spec(hours=0), "batch_then_live.deadline"),
        ):
            with pytest.raises(ServiceError, match=said) as refused:
                await client.runs.create(made)
            assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert not server.bodies


async def test_an_estimate_has_the_price_of_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        imitate("openai", answer) as server,
        platform(of(server), tmp_path, monkeypatch) as client,
    ):
        live, batched = [await client.estimate_run(spec(hours=hours)) for hours in (None, 1)]
    assert batched.cost_usd == pytest.approx(live.cost_usd / 2)
