"""What ``dramaturg eval`` asks of a gateway that reads the rows itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg.api.evaluation.v1 import decisions_pb2, graphs_pb2, run_pb2, scripts_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunPolicy, RunSpec
from dramaturg.api.generation.v1 import authoring_decisions_pb2
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.cli.main import app
from tests.support.command_line import ROOT, dramaturg
from tests.support.run_service import RUN, no_runs, run_service

ADDRESS = "s3://bucket/rows.jsonl"
PAIRS = "--kind pairs --set order=swapped --set baselines=llm --sweep 5"
DEMONSTRATIONS = ROOT / "examples" / "decisions" / "demonstrations.jsonl"


async def created(*commands: tuple[str | Path, ...]) -> list[RunSpec]:
    """The specs that commands ask for, in order."""
    scripted = no_runs()
    async with run_service(scripted) as target:
        for command in commands:
            done = await dramaturg(*command, "--by-reference", "--target", target, "--detach", "--json")
            assert done.code == 0, done.err
            assert done.json["id"] == RUN
    return [request.spec for request in scripted.created]


async def test_the_options_of_rows_are_those_of_the_run() -> None:
    options = (
        "--model m1 --model m2 --judge critic=a --judge critic=b --judge-model critic=big "
        "--judge-model small --set sampling.seed=7 --repeats 3 --label team=x=y "
        "--limit 10 --set mechanism=single-judge --set gold_answer_source=direct "
        "--set unusable_outputs_abstain=true"
    )
    (spec,) = await created(("eval", ADDRESS, "--kind", "scripts", *options.split()))
    assert spec.display_name == "rows.jsonl"
    expected = Dataset(uri=ADDRESS, format=run_pb2.DATASET_FORMAT_JSONL, row_limit=10)
    assert spec.dataset == expected
    assert list(spec.models) == ["m1", "m2"]
    judges = [(one.role, one.judge, one.model) for one in spec.judges]
    assert judges == [("critic", "a", "big"), ("critic", "b", "big")]
    assert spec.options.model == "small"
    assert (spec.options.sampling.seed, spec.options.repeats) == (7, 3)
    assert spec.unusable_outputs_abstain
    assert spec.labels.pop("evaluation")
    assert dict(spec.labels) == {"team": "x=y"}
    assert spec.scripts.mechanism == scripts_pb2.MECHANISM_SINGLE_JUDGE
    assert spec.scripts.gold_answer_source == scripts_pb2.GOLD_ANSWER_SOURCE_DIRECT


@pytest.mark.slow
async def test_each_kind_has_options_of_its_own(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    commands = [
        (f"{PAIRS} --set roles.objective_set=summarisation --set rules.forced_choice=true", ADDRESS),
        ("--kind graphs --set task=pipeline --set method=pairwise --set reduce=true", ADDRESS),
        ("--kind decisions --set prompts=naive,story --set option_order=both --name=", str(rows)),
        ("--kind dialogues --model a --model b --pair all --set ratings_omitted=true", ADDRESS),
    ]
    specs = await created(
        *(("eval", file, *options.split()) for options, file in commands),
        ("research", "scenarios", "write", ADDRESS, "--count", "3", "--demonstrations", DEMONSTRATIONS),
    )
    pairs, graphs, decisions, dialogues, scenarios = specs
    assert pairs.pairs.order == pair_judge_service_pb2.PRESENTATION_ORDER_SWAPPED
    assert pairs.pairs.rules == pair_judge_service_pb2.ComparisonRules(forced_choice=True)
    assert list(pairs.pairs.baselines) == ["llm"]
    assert (pairs.pairs.roles.coarse_count, pairs.pairs.roles.fine_count) == (3, 2)
    assert pairs.pairs.roles.objective_set == "summarisation"
    assert (graphs.graphs.task, graphs.graphs.reduce) == (graphs_pb2.GRAPH_TASK_PIPELINE, True)
    # What is left out is absent.
    policy = RunPolicy()
    policy.sample_timeout.FromSeconds(600)
    expected = RunSpec(
        dataset=Dataset(uri=str(rows), format=run_pb2.DATASET_FORMAT_CSV),
        policy=policy,
        labels=decisions.labels,
    )
    expected.limits.max_concurrent_samples = 8
    expected.decisions.prompts[:] = [
        authoring_decisions_pb2.DECISION_PROMPT_NAIVE,
        authoring_decisions_pb2.DECISION_PROMPT_STORY,
    ]
    expected.decisions.option_order = decisions_pb2.OPTION_ORDER_BOTH
    assert decisions == expected
    (pair,) = dialogues.dialogues.pairs
    assert (pair.first_model, pair.second_model) == ("a", "b")
    assert dialogues.dialogues.ratings_omitted
    assert list(dialogues.models) == ["a", "b"]
    assert scenarios.scenarios.count == 3
    assert [one.target for one in scenarios.scenarios.demonstrations] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("rows.jsonl", "name the kind with --kind"),
        ("- --kind scripts", "standard input has no address"),
        ("rows.jsonl --kind scripts --target=", "name the gateway that reads the rows with --target"),
        ("rows.jsonl --kind scripts --rows all.jsonl", "--by-reference excludes --rows"),
        ("rows.jsonl --kind dialogues --pair all --model m", "--pair all needs two models or more"),
        ("rows.jsonl --kind dialogues --judge text-scorer=t", "replies_scored cannot be set for a run"),
        ("rows.jsonl --kind graphs --set reduce=false", "a run cannot set reduce to false"),
        ("rows.jsonl --kind pairs --sweep 1,2", "each row is one sample"),
        ("rows.jsonl --kind pairs --shuffle 7", "keeps the order of each row"),
        ("rows.jsonl --kind texts --text answer", "reads rows and no table of texts"),
    ],
)
def test_what_a_run_cannot_have_is_told(arguments: str, told: str) -> None:
    command = ["eval", "--by-reference", "--target", "127.0.0.1:1", *arguments.split()]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert told in " ".join(done.stderr.replace("│", " ").split())
