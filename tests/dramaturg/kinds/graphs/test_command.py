"""``dramaturg eval --kind graphs`` as a user runs it, against a gateway over real gRPC."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.graphs_pb2 import (
    EvaluateGraphsRequest,
    GivenGraph,
    GraphsResult,
)
from dramaturg.api.generation.v1.authoring_graphs_pb2 import WriteScriptGraphRequest, WriteScriptGraphResponse
from dramaturg.api.generation.v1.edge_service_pb2 import PredictEdgesRequest, PredictEdgesResponse
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.cli.main import app
from dramaturg.service.errors import ServiceError
from tests.support.evaluations import Method, in_a_thread
from tests.support.figures import figure
from tests.support.graph_evaluations import end_to_end, graphs_gateway, serve_graph_service, texts_of
from tests.support.graphs import message

pytestmark = pytest.mark.usefixtures("runs_enabled")


def run(command: str, *arguments: object, columns: int = 80) -> Result:
    return CliRunner().invoke(app, [command, *map(str, arguments)], env={"COLUMNS": str(columns)})


def evaluate(*arguments: object, columns: int = 80) -> Result:
    return run("eval", "--kind", "graphs", *arguments, columns=columns)


def summary(result: Result) -> Any:
    assert result.exit_code in {0, 1, 4}, result.output
    return json.loads(result.stdout)


@contextmanager
def gateway(predict: Method | None = None, write: Method | None = None) -> Iterator[str]:
    @asynccontextmanager
    async def serve() -> AsyncIterator[str]:
        async with serve_graph_service() as graph, graphs_gateway(graph, predict, write) as target:
            yield target

    with in_a_thread(serve) as target:
        yield target


def scripts() -> list[ScriptGraph]:
    """A chain, a fork and a join; each event's text tells its script."""
    edges = ("a>b b>c", "a>b a>c", "a>c b>c")
    made = []
    for number, text in enumerate(edges, start=1):
        graph = message(text, {name: f"{name} of {number}" for name in "abc"}, f"s{number}")
        graph.scenario = f"script {number}"
        made.append(graph)
    return made


def write(file: Path, *requests: EvaluateGraphsRequest) -> Path:
    file.write_text("".join(json.dumps(MessageToDict(one)) + "\n" for one in requests), encoding="utf-8")
    return file


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    requests = [
        EvaluateGraphsRequest(reference=graph, tags={"degree": degree})
        for graph, degree in zip(scripts(), ("1", "2", "2"), strict=True)
    ]
    return write(tmp_path / "rows.jsonl", *requests)


KNOWN = {graph.scenario: texts_of(graph) for graph in scripts()}


async def known(request: PredictEdgesRequest) -> PredictEdgesResponse:
    """A model that knows the scripts; one that answers with cycles; one that fails on the second script."""
    ids = {event.text: event.id for event in request.events}
    edges = [(ids[first], ids[second]) for first, second in KNOWN[request.scenario]]
    if request.options.model == "circular":
        edges += [(second, first) for first, second in edges]
    if request.options.model == "partial" and request.scenario == "script 2":
        raise ServiceError(
            grpc.StatusCode.RESOURCE_EXHAUSTED, error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED, "spent"
        )
    return end_to_end(request, edges)


def test_models_side_by_side(rows: Path, tmp_path: Path) -> None:
    models = [part for name in ("sure", "circular", "partial") for part in ("--model", name)]
    with gateway(known) as target:
        result = evaluate(
            rows, "--target", target, *models, "--group-by", "degree", "--json", "--out", tmp_path / "out"
        )
    assert result.exit_code == 4
    found = summary(result)
    assert (found["sample_count"], found["failed_sample_count"], found["problems"]) == (3, 0, [])
    assert found["usage"]["provider_call_count"] == 8
    figures = found["graphs"]["figures"]
    sure, circular, partial = (
        figure(figures, model=name, tags={}) for name in ("sure", "circular", "partial")
    )
    assert {one["model"] for one in figures} == {"sure", "circular", "partial"}
    assert sure["task"] == "predict-edges"
    assert sure["edges"]["exact_match_count"] == 3
    assert sure["edges"]["macro"]["f1"]["value"] == sure["edges"]["micro"]["f1"] == 1
    assert (circular["cyclic_count"], circular["edges"]["exact_match_count"]) == (3, 0)
    assert circular["edges"]["macro"]["precision"]["value"] == 0.5
    assert circular["edges"]["micro"]["extra_edges"] == 6
    assert partial["graph_count"] == 3
    assert partial["abstentions_by_reason"] == {"OVER_BUDGET": 1}
    assert (partial["edges"]["pair_count"], partial["edges"]["macro"]["f1"]["value"]) == (2, 1)
    assert partial["macro_f1_abstentions_zero"] == pytest.approx(2 / 3)
    first, second = (figure(figures, model="partial", tags={"degree": degree}) for degree in "12")
    assert (first["graph_count"], first["abstentions_by_reason"]) == (1, {})
    assert (second["graph_count"], second["abstentions_by_reason"]) == (2, {"OVER_BUDGET": 1})
    assert second["edges"]["pair_count"] == 1
    lines = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    results = [ParseDict(json.loads(line), GraphsResult()) for line in lines]
    assert [one.reference.id for one in results] == ["s1", "s2", "s3"]
    assert (tmp_path / "out" / "errors.jsonl").read_text() == ""


def test_tables_fit_a_terminal_and_say_who_abstained(rows: Path, tmp_path: Path) -> None:
    with gateway(known) as target:
        options = ["--model", "partial", "--set", "distance_mode=proscript", "--group-by", "degree"]
        result = evaluate(rows, "--target", target, *options, "--out", tmp_path)
    assert result.exit_code == 4, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert any(line.startswith("partial predict-edges all macro") for line in lines)
    assert any(line.startswith("over budget") for line in lines)
    assert "0.667" in result.stdout
    assert "V-Del" in result.stdout
    assert "…" not in result.stdout


def test_what_the_command_line_sets_reaches_the_models(rows: Path, tmp_path: Path) -> None:
    asked: list[WriteScriptGraphRequest] = []
    methods: list[int] = []

    async def predict(request: PredictEdgesRequest) -> PredictEdgesResponse:
        methods.append(request.method)
        raise ServiceError(grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_UNSPECIFIED, "no")

    async def author(request: WriteScriptGraphRequest) -> WriteScriptGraphResponse:
        asked.append(request)
        return WriteScriptGraphResponse(graph=scripts()[0])

    with gateway(predict, author) as target:
        common = ["--target", target, "--json", "--limit", 1, "--out", tmp_path / "out"]
        written = summary(evaluate(rows, *common, "--set", "task=generate", "--model", "w"))
        pipeline = ("--set", "task=pipeline", "--set", "method=pairwise", "--replace")
        piped = summary(evaluate(rows, *common, *pipeline))
    # A run attempts a sample with a transient error again.
    assert list(dict.fromkeys(request.options.model for request in asked)) == ["w", ""]
    assert set(methods) == {2}
    (model,) = written["graphs"]["figures"]
    assert (model["task"], model["model"]) == ("generate", "w")
    distance = figure(model["distances"], mode="proscript")
    assert (distance["measured_count"], distance["proven_count"], distance["mean"]["value"]) == (1, 1, 0)
    (model,) = piped["graphs"]["figures"]
    assert (model["task"], model["abstentions_by_reason"], model["edges"]) == (
        "pipeline",
        {"JUDGE_UNAVAILABLE": 1},
        None,
    )


def test_reduced_and_in_another_mode(rows: Path, tmp_path: Path) -> None:
    shortcut = scripts()[0]
    shortcut.edges.add(source_id="a", target_id="c")
    request = EvaluateGraphsRequest(
        reference=scripts()[0], graphs=[GivenGraph(model="given", graph=shortcut)], reduce=True
    )
    file = write(tmp_path / "given.jsonl", request)
    with gateway() as target:
        common = [
            file,
            "--target",
            target,
            "--json",
            "--out",
            tmp_path / "out",
            "--set",
            "distance_mode=anchored",
        ]
        (reduced,) = summary(evaluate(*common))["graphs"]["figures"]
        (plain,) = summary(evaluate(*common, "--set", "reduce=false", "--replace"))["graphs"]["figures"]
    for found, exact, mean in ((reduced, 1, 0), (plain, 0, 1)):
        assert found["edges"]["exact_match_count"] == exact
        assert figure(found["distances"], mode="anchored")["mean"]["value"] == mean


def test_rows_and_usage_that_are_wrong_end_in_2(rows: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"reference": {"events": [{"id": 1}]}, "tusk": 1}\n')
    result = evaluate(bad, "--target", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "line 1" in result.stderr
    with gateway(known) as target:
        result = evaluate(rows, "--target", target, "--judge", "edges=nobody", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "nobody" in result.stderr
