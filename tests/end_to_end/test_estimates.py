"""Estimates of a run against what the run then costs, on a whole platform with a model that counts calls."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from dramaturg.api.common.v1 import dialogue_pb2, error_reason_pb2
from dramaturg.api.common.v1.decision_pb2 import Decision
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.evaluation.v1 import decisions_pb2, graphs_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueScript,
    EvaluateDialoguesRequest,
    ModelPair,
    SimulateDialogueRequest,
)
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, Run, RunBudget, RunSpec
from dramaturg.api.evaluation.v1.scenarios_pb2 import WriteScenariosRequest
from dramaturg.api.generation.v1.authoring_decisions_pb2 import ScenarioBrief
from dramaturg.api.generation.v1.edge_service_pb2 import (
    EDGE_METHOD_END_TO_END,
    EDGE_METHOD_PAIRWISE,
    EdgeMethod,
)
from dramaturg.client import DramaturgClient
from dramaturg.service.errors import ServiceError
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing.generation import smallest_instance
from gateway.launch.platform import Platform
from gateway.runs.settings import RunsSettings
from tests.support.command_line import ROOT, Finished, dramaturg
from tests.support.engines import lines, script_rows, scripts_spec
from tests.support.graph_evaluations import eggs
from tests.support.openai_server import Answer, Body, OpenAIServer
from tests.support.pairs import BAD, GOOD, READERS
from tests.support.pairs import request as pair_request
from tests.support.readers import prefer_text, votes
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
    members = schema.get("properties", {})
    if not members:
        return "Option 1" if "Which option" in body["messages"][-1]["content"] else "yes"
    if "coarse" in members:
        return json.dumps(READERS)
    if "role_1" in members:
        return json.dumps(votes(prefer_text([GOOD, BAD]))(body))
    if "events" in members:
        events = [{"number": number, "event": f"step {number}"} for number in range(1, 5)]
        return json.dumps({"events": events, "edges": [{"before": 1, "after": 2}]})
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


def pairs() -> RunSpec:
    spec = RunSpec(dataset=Dataset(content=lines([pair_request(id=name) for name in ("a", "b")])))
    spec.pairs.baselines[:] = ["llm", "fixed-roles"]
    # A panel: the judge of pairs with two models.
    spec.judges.add(role="pair-judge", model="m")
    spec.judges.add(role="pair-judge", model="n")
    return spec


def graphs(task: graphs_pb2.GraphTask.ValueType, method: EdgeMethod.ValueType) -> RunSpec:
    request = EvaluateGraphsRequest(reference=eggs(), task=task, models=["m", "n"])
    spec = RunSpec(dataset=Dataset(content=lines([request])))
    spec.graphs.method = method
    if task == graphs_pb2.GRAPH_TASK_PIPELINE:
        spec.graphs.event_matching = graphs_pb2.EVENT_MATCHING_JUDGE
    return spec


def simulations() -> RunSpec:
    task = SimulationTask(id="shell", name="terminal", description="Act as a Linux terminal.")
    spec = RunSpec(dataset=Dataset(content=lines([SimulateDialogueRequest(task=task, max_turn_count=3)])))
    spec.simulations.user_model = "n"
    return spec


def dialogues() -> RunSpec:
    script = DialogueScript(
        id="shell",
        task=SimulationTask(name="terminal", description="Act as a terminal."),
        utterances=[Utterance(speaker=dialogue_pb2.SPEAKER_USER, text="Act as a terminal.")],
    )
    pair = ModelPair(first_model="m", second_model="n")
    row = EvaluateDialoguesRequest(script=script, models=["m", "n"], pairs=[pair])
    spec = RunSpec(dataset=Dataset(content=lines([row])))
    spec.dialogues.SetInParent()
    return spec


def scenarios() -> RunSpec:
    brief = ScenarioBrief(goal="Cross", option_1="swim", option_2="walk")
    spec = RunSpec(dataset=Dataset(content=lines([WriteScenariosRequest(brief=brief, count=2)])))
    spec.scenarios.SetInParent()
    return spec


KINDS: dict[str, Callable[[], RunSpec]] = {
    "scripts": lambda: scripts_spec(dataset=Dataset(content=lines(script_rows(4, 2)))),
    "decisions": decisions,
    "texts": texts,
    "pairs": pairs,
    "ordered graphs": lambda: graphs(graphs_pb2.GRAPH_TASK_PREDICT_EDGES, EDGE_METHOD_END_TO_END),
    "graphs by pairs": lambda: graphs(graphs_pb2.GRAPH_TASK_PREDICT_EDGES, EDGE_METHOD_PAIRWISE),
    "written graphs": lambda: graphs(graphs_pb2.GRAPH_TASK_PIPELINE, EDGE_METHOD_PAIRWISE),
    "simulations": simulations,
    "dialogues": dialogues,
    "repeated scripts": lambda: repeated(scripts_spec(dataset=Dataset(content=lines(script_rows(2, 2))))),
    "repeated dialogues": lambda: repeated(dialogues()),
    "scenarios": scenarios,
}


def repeated(spec: RunSpec) -> RunSpec:
    spec.options.repeats = 3
    return spec


async def test_the_planned_calls_are_those_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with OpenAIServer(answer) as model, platform(model, tmp_path, monkeypatch) as client:
        for kind, make in KINDS.items():
            spec = make()
            spec.policy.min_coverage = 0
            before = len(model.requests)
            estimate = await client.estimate_run(spec)
            assert len(model.requests) == before, "an estimate without a pilot calls no provider"
            run = await ended(client, spec)
            usage = run.progress.usage
            assert estimate.sample_count == run.progress.sample_count
            # Equal questions are bought once.
            calls = usage.provider_call_count + usage.cache_hit_count
            assert (kind, estimate.model_call_count) == (kind, calls)
            assert sum(one.call_count for one in estimate.models) == calls
            assert {one.model for one in estimate.models} <= {"p/m", "p/n"}
            assert estimate.cost_usd == pytest.approx(estimate.prompt_token_count * PROMPT_USD / 1e6)
            assert not estimate.HasField("completion_token_count")
            assert not estimate.HasField("duration")
            assert any("pilot" in sentence for sentence in estimate.unknown)
            supposed = any("supposed" in sentence for sentence in estimate.unknown)
            assert supposed == (kind == "written graphs")


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
    done = await dramaturg("eval", "--kind", "scripts", TASKS, "--dry-run", "--json")
    assert done.code == 0, done.err
    assert done.json["model_calls"] == 8 + 3 * 32
    assert done.json["cost_usd"] is None
    assert done.json["completion_tokens"] is None
    assert any("price" in sentence for sentence in done.json["unknown"])


async def test_the_command_line_prints_the_estimate(tmp_path: Path) -> None:
    async with OpenAIServer(answer) as model:
        environment = {"DRAMATURG_CONFIG": str(configure(model, tmp_path))}
        done = await dramaturg(
            *("eval", "--kind", "scripts", TASKS, "--dry-run", "--pilot", "1", "--json", "--limit", "2"),
            environment=environment,
        )
        assert done.code == 0, done.err
        assert done.json["pilot_samples"] == 1
        assert done.json["cost_usd"] > done.json["pilot_cost_usd"] > 0
        shown = await dramaturg("eval", "--kind", "scripts", TASKS, "--dry-run", environment=environment)
        assert "tokens received  not known" in shown.out
    offline = await dramaturg("eval", "--kind", "scripts", TASKS, "--dry-run", "--json")
    assert (offline.json["model_calls"], offline.json["cost_usd"]) == (0, 0.0)


async def evaluate(model: OpenAIServer, folder: Path, *options: str, limit: int = 4) -> Finished:
    arguments: list[str | Path] = [
        "eval",
        "--kind",
        "scripts",
        TASKS,
        "--limit",
        str(limit),
        "--concurrency",
        "1",
    ]
    return await dramaturg(
        *(*arguments, "--out", folder / "out", "--json", *options),
        environment={"DRAMATURG_CONFIG": str(configure(model, folder))},
    )


async def test_evaluate_refuses_a_budget_below_the_plan(tmp_path: Path) -> None:
    async with OpenAIServer(answer) as model:
        done = await evaluate(model, tmp_path, "--max-tokens", "100", "--max-cost-usd", "0.001")
        assert not bought(model)
    assert done.code == 4, done.err
    assert "nothing is evaluated: the expected cost" in done.err
    assert "tokens exceed max_token_count, 100" in done.err
    assert not (tmp_path / "out").exists()


async def test_evaluate_ends_at_its_budget(tmp_path: Path) -> None:
    def wordy(body: Body) -> Answer:
        return Answer(answer(body), usage={"prompt_tokens": 5000, "completion_tokens": 5000})

    async with OpenAIServer(wordy) as model:
        done = await evaluate(model, tmp_path, "--max-tokens", "120000")
    assert done.code == 4, done.err
    assert "the budget of 120000 tokens is reached; 3 samples were not started" in done.err
    assert done.json["sample_count"] == 1


async def test_evaluate_refuses_a_budget_that_cannot_be_kept_without_token_counts(tmp_path: Path) -> None:
    async with OpenAIServer(lambda body: Answer(answer(body), usage=None)) as model:
        done = await evaluate(model, tmp_path, "--max-tokens", "10000000")
        assert (done.code, done.out) == (2, "")
        assert "token counts" in done.err
        done = await evaluate(
            model,
            tmp_path,
            "--max-tokens",
            "10000000",
            "--set",
            "budget.estimate_unreported_usage=true",
            limit=2,
        )
    assert done.json["sample_count"] == 2, done.err
    assert re.search(r"\bbudget\b", done.err) is None  # a path may have the word in a name
    assert done.json["usage"]["estimated_token_count"] > 1000
