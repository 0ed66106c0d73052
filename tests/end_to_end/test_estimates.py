"""Estimates of a run against what the run then costs, on a whole platform with a model that counts calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.decision_pb2 import Decision
from dramaturg.api.evaluation.v1 import decisions_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, Run, RunBudget, RunSpec
from dramaturg.client import DramaturgClient
from dramaturg.service.errors import ServiceError
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing.schemas import smallest_instance
from gateway.launch.platform import Platform
from gateway.runs.settings import RunsSettings
from tests.support.command_line import ROOT, dramaturg
from tests.support.engines import lines, script_rows, scripts_spec
from tests.support.openai_server import Body, OpenAIServer
from tests.support.scripted_model import approve
from tests.support.texts import texts_request

pytestmark = pytest.mark.timeout(180)

TASKS = ROOT / "examples" / "scripts" / "tasks.jsonl"
PROMPT_USD, COMPLETION_USD = 2.0, 8.0


def configure(server: OpenAIServer, folder: Path) -> Path:
    prices = folder / "prices.toml"
    prices.write_text(f'["*"]\nprompt = {PROMPT_USD}\ncompletion = {COMPLETION_USD}\n')
    configuration = folder / "dramaturg.toml"
    configuration.write_text(
        f'[generation.providers.p]\nbase_url = "{server.base_url}"\ndefault_model = "m"\n'
        f'prices = "{prices}"\n'
    )
    return configuration


@asynccontextmanager
async def platform(
    server: OpenAIServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DramaturgClient]:
    monkeypatch.setenv("DRAMATURG_CONFIG", str(configure(server, folder)))
    monkeypatch.setenv("DRAMATURG_GENERATION_LEDGER", ":memory:")
    runs = RunsSettings(enabled=True, url=f"sqlite:///{folder}/runs.sqlite3", drain_timeout_seconds=1)
    async with (
        Platform(runs=runs).open() as contracts,
        Server(contracts, ServerSettings.loopback(drain_grace_seconds=1)) as gateway,
        DramaturgClient(gateway.target) as client,
    ):
        yield client


async def ended(client: DramaturgClient, spec: RunSpec) -> Run:
    created = await client.runs.create(spec)
    async for event in client.runs.watch(created.id):
        if event.run.outcome:
            break
    return await client.runs.get(created.id)


def bought(model: OpenAIServer) -> int:
    """The model calls, without the checks of the connection."""
    return sum(bool(request.body.get("messages")) for request in model.requests)


def answer(body: Body) -> str:
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    return approve(body) if "considerations" in json.dumps(schema) else json.dumps(smallest_instance(schema))


def decisions() -> RunSpec:
    rows = [
        EvaluateDecisionsRequest(
            decision=Decision(goal="Cross", option_1="swim", option_2="walk", scenario=f"Day {index}"),
            models=["m", "n"],
        )
        for index in range(3)
    ]
    spec = RunSpec(dataset=Dataset(content=lines(rows)))
    spec.decisions.option_order = decisions_pb2.OPTION_ORDER_BOTH
    return spec


def texts() -> RunSpec:
    spec = RunSpec(dataset=Dataset(content=lines([texts_request("Hello.", "", "Bye."), texts_request()])))
    spec.texts.SetInParent()
    return spec


@pytest.mark.parametrize("kind", ["scripts", "decisions", "texts"])
async def test_the_planned_calls_are_those_of_the_run(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = scripts_spec(dataset=Dataset(content=lines(script_rows(4, 2))))
    spec = {"scripts": scripts, "decisions": decisions(), "texts": texts()}[kind]
    spec.policy.min_coverage = 0
    async with OpenAIServer(answer) as model, platform(model, tmp_path, monkeypatch) as client:
        estimate = await client.estimate_run(spec)
        assert not model.requests, "an estimate without a pilot calls no provider"
        run = await ended(client, spec)
    usage = run.progress.usage
    assert estimate.sample_count == run.progress.sample_count
    # Equal questions of a run are bought once.
    assert estimate.model_call_count == usage.provider_call_count + usage.cache_hit_count
    assert sum(one.call_count for one in estimate.models) == estimate.model_call_count
    assert {one.model for one in estimate.models} <= {"p/m", "p/n"}
    assert estimate.cost_usd == pytest.approx(estimate.prompt_token_count * PROMPT_USD / 1e6)
    assert not estimate.HasField("completion_token_count")
    assert not estimate.HasField("duration")
    assert any("pilot" in sentence for sentence in estimate.unknown)


async def test_a_pilot_measures_what_the_run_then_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = scripts_spec(dataset=Dataset(content=lines(script_rows(12, 2))))
    async with OpenAIServer(answer) as model, platform(model, tmp_path, monkeypatch) as client:
        planned = await client.estimate_run(spec)
        estimate = await client.estimate_run(spec, pilot_sample_count=3)
        pilot = bought(model)
        run = await ended(client, spec)
        again = await client.estimate_run(spec, pilot_sample_count=3)
    assert estimate.pilot_sample_count == 3
    assert pilot == estimate.usage.provider_call_count == planned.model_call_count // 4
    # The run finds the completions of the pilot in the ledger.
    assert bought(model) == planned.model_call_count
    assert not estimate.unknown
    assert estimate.cost_usd == pytest.approx(4 * estimate.usage.cost_usd)
    total = run.progress.usage.cost_usd + estimate.usage.cost_usd
    assert estimate.cost_usd == pytest.approx(total, rel=0.1)
    assert planned.prompt_token_count == pytest.approx(estimate.prompt_token_count, rel=0.4)
    assert estimate.duration.ToNanoseconds() > 0
    assert "from the ledger" in again.unknown[0]


async def test_a_budget_that_is_too_small_is_told_before_a_pilot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = scripts_spec(
        dataset=Dataset(content=lines(script_rows(4))),
        budget=RunBudget(max_cost_usd=1e-6, max_token_count=10, max_provider_call_count=3),
    )
    async with OpenAIServer(answer) as model, platform(model, tmp_path, monkeypatch) as client:
        estimate = await client.estimate_run(spec)
        words = [sentence.split()[2] for sentence in estimate.budget_exceeded]
        tokens, calls = estimate.prompt_token_count, estimate.model_call_count
        assert words == ["cost,", str(tokens), str(calls)]
        with pytest.raises(ServiceError) as refused:
            await client.estimate_run(spec, pilot_sample_count=2)
        assert not model.requests
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert refused.value.reason == error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED


async def test_what_is_not_known_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("MODEL", "nobody-knows-its-price")
    done = await dramaturg("evaluate", "scripts", TASKS, "--dry-run", "--json")
    assert done.code == 0, done.err
    assert done.json["model_calls"] == 8 + 3 * 32
    assert done.json["cost_usd"] is None
    assert done.json["completion_tokens"] is None
    assert any("price" in sentence for sentence in done.json["unknown"])


async def test_the_command_line_prints_the_estimate(tmp_path: Path) -> None:
    async with OpenAIServer(answer) as model:
        environment = {"DRAMATURG_CONFIG": str(configure(model, tmp_path))}
        done = await dramaturg(
            *("evaluate", "scripts", TASKS, "--dry-run", "--pilot", "1", "--json", "--limit", "2"),
            environment=environment,
        )
        assert done.code == 0, done.err
        assert done.json["pilot_samples"] == 1
        assert done.json["cost_usd"] > done.json["pilot_cost_usd"] > 0
        shown = await dramaturg("evaluate", "scripts", TASKS, "--dry-run", environment=environment)
        assert "tokens received  not known" in shown.out
    offline = await dramaturg("evaluate", "scripts", TASKS, "--dry-run", "--json")
    assert (offline.json["model_calls"], offline.json["cost_usd"]) == (0, 0.0)
