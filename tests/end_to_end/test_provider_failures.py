"""A whole platform whose model provider fails: how often it is called, and how the run ends."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, Run, RunBudget, RunSpec
from dramaturg.client import DramaturgClient
from dramaturg.service.errors import ServiceError
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from gateway.launch.platform import Platform
from gateway.runs.settings import RunsSettings
from tests.support.command_line import ROOT, dramaturg
from tests.support.engines import lines, script_rows, scripts_spec
from tests.support.openai_server import Answer, Body, OpenAIServer
from tests.support.ports import free_port
from tests.support.scripted_model import approve

pytestmark = pytest.mark.timeout(180)

AGENTS = ("synthesize", "critic", "execute", "commonsense")
MAX_CALLS = 12
TASKS = ROOT / "examples" / "scripts" / "tasks.jsonl"
PROVIDER = """
[generation.providers.p]
base_url = "{url}"
default_model = "m"
prices = "{prices}"
[generation.providers.p.retries]
first_wait_seconds = 0.01
longest_wait_seconds = 0.01
"""


@asynccontextmanager
async def platform(
    server: OpenAIServer,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    prices: Mapping[str, tuple[float, float]] | None = None,
    **settings: Any,
) -> AsyncIterator[DramaturgClient]:
    """A platform whose retries wait for no time, so that only their number bounds them."""
    configuration = folder / "dramaturg.toml"
    table = folder / "prices.toml"
    table.write_text(
        "".join(
            f'["{model}"]\nprompt = {prompt}\ncompletion = {completion}\n'
            for model, (prompt, completion) in (prices or {}).items()
        )
    )
    configuration.write_text(PROVIDER.format(url=server.base_url, prices=table))
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


async def ended(client: DramaturgClient, spec: RunSpec | int) -> Run:
    if isinstance(spec, int):
        spec = scripts_spec(dataset=Dataset(content=lines(script_rows(spec))))
    created = await client.runs.create(spec)
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
        OpenAIServer(broken, models=("m",)) as server,
        platform(server, tmp_path, monkeypatch, outage_timeout_seconds=5) as client,
    ):
        run = await ended(client, 1)
        calls = len(server.requests)
    assert 0 < calls <= MAX_CALLS
    assert (run.state, run.outcome) == (run_pb2.RUN_STATE_FAILED, run_pb2.RUN_OUTCOME_NOTHING_JUDGED)
    assert "the model server is out of memory" in run.state_reason


async def test_an_evaluation_by_a_dead_endpoint_ends_soon(tmp_path: Path) -> None:
    environment = {"OPENAI_BASE_URL": f"http://127.0.0.1:{free_port()}/v1", "MODEL": "m"}
    begun = time.monotonic()
    done = await dramaturg(
        *("eval", "--kind", "scripts", TASKS, "--limit", "2", "--json", "--out", tmp_path),
        environment=environment,
    )
    assert time.monotonic() - begun < 20, "it took 44 s when every layer retried"
    assert done.code == 1
    assert "cannot be reached" in done.err


async def test_a_provider_that_fails_for_ever_pauses_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        OpenAIServer(broken, models=("m",)) as server,
        platform(server, tmp_path, monkeypatch, outage_timeout_seconds=0) as client,
    ):
        run = await ended(client, 100)
        calls = len(server.requests)
        assert (run.state, run.outcome) == (run_pb2.RUN_STATE_PAUSED, run_pb2.RUN_OUTCOME_HALTED)
        assert "the model server is out of memory" in run.state_reason
        assert calls <= MAX_CALLS * (run.progress.succeeded_count + run.progress.running_count)
        await client.runs.cancel(run.id)


@asynccontextmanager
async def misconfigured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> AsyncIterator[tuple[OpenAIServer, DramaturgClient]]:
    """A platform with a provider whose configuration is wrong in one place."""
    async with OpenAIServer(api_key="right", models=("m",)) as server:
        monkeypatch.setenv("KEY", change.get("key", "right"))
        url = server.base_url
        if change.get("url") == "no-path":
            url = url.removesuffix("/v1")
        if change.get("url") == "dead":
            url = f"http://127.0.0.1:{free_port()}/v1"
        configuration = folder / "dramaturg.toml"
        configuration.write_text(
            f'[generation.providers.p]\nbase_url = "{url}"\ndefault_model = "{change.get("model", "m")}"\n'
            'api_key_env = "KEY"\n'
        )
        monkeypatch.setenv("DRAMATURG_CONFIG", str(configuration))
        monkeypatch.setenv("DRAMATURG_GENERATION_LEDGER", ":memory:")
        runs = RunsSettings(enabled=True, url=f"sqlite:///{folder}/runs.sqlite3", drain_timeout_seconds=1)
        async with (
            Platform(AGENTS, runs=runs).open() as contracts,
            Server(contracts, ServerSettings.loopback(drain_grace_seconds=1)) as gateway,
            DramaturgClient(gateway.target) as client,
        ):
            yield server, client


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"key": "wrong"}, "PROVIDER_UNAUTHENTICATED", "Incorrect API key"),
        ({"url": "no-path"}, "PROVIDER_ADDRESS_INVALID", "404"),
        ({"url": "dead"}, "PROVIDER_UNAVAILABLE", "127.0.0.1"),
    ],
)
async def test_a_run_whose_models_cannot_be_called_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], reason: str, words: str
) -> None:
    async with misconfigured(tmp_path, monkeypatch, change) as (server, client):
        spec = scripts_spec(dataset=Dataset(content=lines(script_rows(3))))
        begun = time.monotonic()
        with pytest.raises(ServiceError) as refused:
            await client.runs.create(spec)
        assert time.monotonic() - begun < 10
        assert refused.value.reason_name == f"ERROR_REASON_{reason}"
        assert words in refused.value.message
        assert not [one for one in server.requests if one.body.get("messages")]
        listed = await client.list_judges(model_checked=True)
        failing = {
            judge.role for judge in listed if judge.name == "llm" and judge.model_check.features[0].detail
        }
        assert failing == set(AGENTS)
        assert {judge.model_check.model for judge in listed if judge.name == "llm"} == {"m"}


async def test_a_model_that_the_provider_does_not_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def respond(body: Body) -> Answer:
        return Answer(f"The model `{body['model']}` does not exist", status=404, error_code="model_not_found")

    async with OpenAIServer(respond) as server, platform(server, tmp_path, monkeypatch) as client:
        spec = scripts_spec(dataset=Dataset(content=lines(script_rows(1))))
        with pytest.raises(ServiceError, match="The model `m` does not exist") as refused:
            await client.runs.create(spec)
        assert refused.value.reason_name == "ERROR_REASON_MODEL_UNKNOWN"
        assert not [one for one in server.requests if one.body.get("messages")]


async def test_a_money_budget_needs_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        OpenAIServer(approve, models=("m",)) as server,
        platform(server, tmp_path, monkeypatch) as client,
    ):
        budget = RunBudget(max_cost_usd=1)
        spec = scripts_spec(dataset=Dataset(content=lines(script_rows(1))), budget=budget)
        with pytest.raises(ServiceError, match="that of p/m is unknown") as refused:
            await client.runs.create(spec)
        assert [one.field for one in refused.value.violations] == ["spec.budget.max_cost_usd"]
        spec.budget.Clear()
        spec.budget.max_token_count = 10**9
        assert (await client.runs.create(spec)).id


def without_usage(body: Body) -> Answer:
    return Answer(approve(body) if "response_format" in body else "ready", usage=None)


@pytest.mark.parametrize("limits", [{"max_token_count": 10**9}, {"max_cost_usd": 10.0}])
async def test_a_budget_needs_token_counts(
    limits: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        OpenAIServer(without_usage, models=("m",)) as server,
        platform(server, tmp_path, monkeypatch, prices={"m": (1.0, 2.0)}) as client,
    ):
        spec = scripts_spec(dataset=Dataset(content=lines(script_rows(1))), budget=RunBudget(**limits))
        with pytest.raises(ServiceError, match="p/m states none: set estimate_unreported_usage") as refused:
            await client.runs.create(spec)
        assert [one.field for one in refused.value.violations] == [f"spec.budget.{next(iter(limits))}"]
        asked = [one.body for one in server.requests if one.body.get("messages")]
        assert [one["max_tokens"] for one in asked] == [16], "one small call shows it"
        with pytest.raises(ServiceError, match="states none"):
            await client.runs.create(spec)
        assert len([one for one in server.requests if one.body.get("messages")]) == 1, "and is remembered"


async def test_estimates_of_tokens_keep_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        OpenAIServer(without_usage, models=("m",)) as server,
        platform(server, tmp_path, monkeypatch, prices={"m": (1.0, 2.0)}) as client,
    ):
        budget = RunBudget(max_token_count=100_000, estimate_unreported_usage=True)
        spec = scripts_spec(dataset=Dataset(content=lines(script_rows(200))), budget=budget)
        spec.limits.max_concurrent_samples = 1
        run = await ended(client, spec)
        bodies = [one.body for one in server.requests if one.body.get("messages")]
    usage = run.progress.usage
    assert run.outcome == run_pb2.RUN_OUTCOME_BUDGET_REACHED
    assert re.search(r"the budget of 100000 tokens is reached \(\d+ of them estimated\)", run.state_reason)
    assert usage.unmetered_call_count == usage.estimated_call_count == usage.provider_call_count
    assert not usage.prompt_token_count
    sent = sum(len(message["content"]) for body in bodies for message in body["messages"])
    assert sent < usage.estimated_token_count < 120_000
    assert usage.estimated_cost_call_count == usage.estimated_call_count
    assert 0 < usage.estimated_cost_usd < usage.estimated_token_count * 2 / 1e6
    assert not usage.HasField("cost_usd")


async def test_rows_that_cannot_be_planned_refuse_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        OpenAIServer(approve, models=("m",)) as server,
        platform(server, tmp_path, monkeypatch) as client,
    ):
        rows: list[Any] = script_rows(3, candidates=2)
        for row in rows[:2]:
            row.candidates[1].id = row.candidates[0].id
        twice = scripts_spec(dataset=Dataset(content=lines(rows[:2])), models=["m"])
        with pytest.raises(ServiceError, match=r"no row can be evaluated; line 1: candidates\[1\]"):
            await client.runs.create(twice)
        assert not [one for one in server.requests if one.body.get("messages")]
        once = scripts_spec(dataset=Dataset(content=lines(rows)))
        run = await client.runs.create(once)
        async for _ in client.runs.watch(run.id):
            pass
        run = await client.runs.get(run.id)
        assert dict(run.progress.failures_by_reason) == {"FIELD_INVALID": 2}
        assert run.outcome == run_pb2.RUN_OUTCOME_LOW_COVERAGE
