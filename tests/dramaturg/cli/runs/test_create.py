"""What ``dramaturg runs create`` asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg.api.evaluation.v1 import decisions_pb2, graphs_pb2, run_pb2, scripts_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunPolicy, RunSpec
from dramaturg.api.generation.v1 import authoring_decisions_pb2
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.cli.runs.commands import app
from dramaturg.cli.runs.spec import INLINE_BYTES
from tests.support.command_line import ROOT, dramaturg
from tests.support.run_service import RUN, run_service, scripted_runs

ADDRESS = "s3://bucket/rows.jsonl"
DEMONSTRATIONS = ROOT / "examples" / "decisions" / "demonstrations.jsonl"
ROWS = b'{"task": {"goal": "Make tea"}}\n'


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(ROWS)
    return file


async def created(*commands: tuple[str | Path, ...], stdin: bytes = b"") -> list[RunSpec]:
    """The specs that commands ask for, in order."""
    scripted = scripted_runs(1)
    async with run_service(scripted) as target:
        for command in commands:
            done = await dramaturg("runs", "create", *command, "--target", target, "--json", stdin=stdin)
            assert done.code == 0, done.err
            assert done.json["id"] == RUN
    return [request.spec for request in scripted.created]


def refused(*command: str | Path, stdin: bytes = b"") -> str:
    """What is told where a command ends before it asks a gateway."""
    done = CliRunner().invoke(app, ["create", *map(str, command), "--target", "127.0.0.1:1"], input=stdin)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    return done.stderr


async def test_what_every_run_may_have(rows: Path) -> None:
    options = (
        "--model m1 --model m2 --judge critic=a --judge critic=b --judge-model critic=big "
        "--judge-model small --seed 7 --label team=x=y --concurrency 4 --priority -3 --max-cost-usd 1.5 "
        "--max-tokens 1000 --max-failed 0 --max-failed-fraction 0.5 --max-abstained-fraction 0.25 "
        "--attempts 5 --sample-timeout 1.5 --limit 10 --mechanism single-judge --gold-answer direct"
    )
    (spec,) = await created(("scripts", rows, *options.split()))
    assert spec.display_name == "rows.jsonl"
    assert (spec.dataset.content, spec.dataset.format) == (ROWS, run_pb2.DATASET_FORMAT_JSONL)
    assert spec.dataset.row_limit == 10
    assert list(spec.models) == ["m1", "m2"]
    judges = [(one.role, one.judge, one.model) for one in spec.judges]
    assert judges == [("critic", "a", "big"), ("critic", "b", "big")]
    assert spec.options.model == "small"
    assert spec.seed == 7
    assert dict(spec.labels) == {"team": "x=y"}
    assert (spec.limits.max_concurrent_samples, spec.limits.priority) == (4, -3)
    assert (spec.budget.max_cost_usd, spec.budget.max_token_count) == (1.5, 1000)
    policy = spec.policy
    assert (policy.max_failed_count, policy.max_failed_fraction) == (0, 0.5)
    assert (policy.max_abstained_fraction, policy.sample_attempt_count) == (0.25, 5)
    assert policy.HasField("max_failed_count")
    assert policy.sample_timeout.ToMilliseconds() == 1500
    assert spec.scripts.mechanism == scripts_pb2.MECHANISM_SINGLE_JUDGE
    assert spec.scripts.gold_answer_source == scripts_pb2.GOLD_ANSWER_SOURCE_DIRECT


async def test_what_is_left_out_is_absent() -> None:
    (spec,) = await created(("decisions", ADDRESS, "--name", ""))
    dataset = Dataset(uri=ADDRESS, format=run_pb2.DATASET_FORMAT_JSONL)
    expected = RunSpec(dataset=dataset, policy=RunPolicy())
    expected.decisions.SetInParent()
    assert spec == expected


@pytest.mark.slow
async def test_each_evaluation_has_options_of_its_own() -> None:
    pairs, graphs, decisions, dialogues, scenarios = await created(
        (
            "pairs",
            ADDRESS,
            "--order",
            "swapped",
            "--baseline",
            "llm",
            "--k",
            "5",
            "--roles",
            "summarisation",
            "--forced-choice",
        ),
        ("graphs", ADDRESS, "--task", "pipeline", "--method", "pairwise", "--reduce"),
        ("decisions", ADDRESS, "--prompt", "naive", "--prompt", "story", "--order", "both"),
        ("dialogues", ADDRESS, "--model", "a", "--model", "b", "--pair", "all", "--no-ratings"),
        ("scenarios", ADDRESS, "--count", "3", "--demonstrations", DEMONSTRATIONS),
    )
    assert pairs.pairs.order == pair_judge_service_pb2.PRESENTATION_ORDER_SWAPPED
    assert pairs.pairs.rules == pair_judge_service_pb2.ComparisonRules(forced_choice=True)
    assert list(pairs.pairs.baselines) == ["llm"]
    assert (pairs.pairs.roles.coarse_count, pairs.pairs.roles.fine_count) == (3, 2)
    assert pairs.pairs.roles.objective_set == "summarisation"
    assert (graphs.graphs.task, graphs.graphs.reduce) == (graphs_pb2.GRAPH_TASK_PIPELINE, True)
    assert list(decisions.decisions.prompts) == [
        authoring_decisions_pb2.DECISION_PROMPT_NAIVE,
        authoring_decisions_pb2.DECISION_PROMPT_STORY,
    ]
    assert decisions.decisions.option_order == decisions_pb2.OPTION_ORDER_BOTH
    (pair,) = dialogues.dialogues.pairs
    assert (pair.first_model, pair.second_model) == ("a", "b")
    assert dialogues.dialogues.ratings_omitted
    assert list(dialogues.models) == ["a", "b"]
    assert scenarios.scenarios.count == 3
    assert [one.target for one in scenarios.scenarios.demonstrations] == [1, 1, 2, 2]


@pytest.mark.slow
async def test_datasets_are_sent_or_referred_to(rows: Path) -> None:
    by_path, by_address, piped = await created(
        ("scripts", rows, "--by-reference"),
        ("scripts", "s3://bucket/rows.parquet"),
        ("scripts", "-", "--format", "csv", "--model", "m"),
        stdin=b"task.goal\nMake tea\n",
    )
    assert by_path.dataset.uri == str(rows)
    assert by_address.dataset.uri == "s3://bucket/rows.parquet"
    assert by_address.dataset.format == run_pb2.DATASET_FORMAT_PARQUET
    assert piped.dataset.content == b"task.goal\nMake tea\n"
    assert piped.dataset.format == run_pb2.DATASET_FORMAT_CSV
    assert not piped.display_name


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("scripts", "-"), "there are no rows"),
        (("scripts", "-", "--by-reference"), "standard input has no path"),
        (("scripts", "ROWS", "--label", "team"), "--label 'team' is not of the form KEY=VALUE"),
        (("scripts", "ROWS", "--judge", "critic"), "--judge 'critic' is not of the form ROLE=NAME"),
        (("dialogues", "ROWS", "--pair", "all"), "--pair all needs two models or more"),
        (("pairs", "ROWS", "--roles", "nobody"), "--roles 'nobody': the sets are"),
        (("paris", "ROWS"), "No such command"),
        (
            ("decisions", "ROWS"),
            "no row is a valid EvaluateDecisionsRequest\n  line 1: task: there",
        ),
    ],
)
def test_what_cannot_be_asked_is_told(arguments: tuple[str, ...], expected: str, rows: Path) -> None:
    assert expected in refused(*(str(rows) if one == "ROWS" else one for one in arguments))


def test_files_that_cannot_be_sent_are_told(tmp_path: Path) -> None:
    large = b" " * (INLINE_BYTES + 1)
    expected = "standard input has more than 15 MiB: write it to a file and name it"
    assert expected in refused("scripts", "-", stdin=large)
    assert "none.jsonl: No such file or directory" in refused("scripts", tmp_path / "none.jsonl")
    told = refused("scripts", "-", "--format", "csv", stdin=b"task.gaol\nMake tea\n")
    assert '- has the column "task.gaol", which is no field of EvaluateScriptsRequest' in told
