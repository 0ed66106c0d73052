"""``dramaturg show`` as a user runs it, against a gateway over real gRPC."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dramaturg.cli.main import app
from tests.support.evaluations import gateway_in_a_thread
from tests.support.figures import verdict_counts
from tests.support.results import scripts_result, write_results

RESULTS = [
    scripts_result(
        "t1", {"a": {"executable": True, "other": None}, "b": {"executable": False, "other": True}}
    ),
    scripts_result("t2", {"a": {"executable": True, "other": True}}),
]
for result, level in zip(RESULTS, ("easy", "hard"), strict=True):
    result.tags["level"] = level


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["show", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return write_results(tmp_path / "out", RESULTS, failed=["t3"])


def test_a_folder_is_summarised_with_its_failed_samples(folder: str) -> None:
    with gateway_in_a_thread({}) as target:
        result = run(folder, "--target", target, "--group-by", "level", "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert (found["sample_count"], found["failed_sample_count"]) == (3, 1)
    assert found["failures_by_reason"] == {"UNAVAILABLE": 1}
    assert found["results"] == folder
    assert verdict_counts(found) == {"PASS": 4, "FAIL": 1, "ABSTAIN": 1}
    assert verdict_counts(found, tags={"level": "easy"}) == {"PASS": 2, "FAIL": 1, "ABSTAIN": 1}
    assert verdict_counts(found, criterion="executable", model="a") == {"PASS": 2, "FAIL": 0, "ABSTAIN": 0}


def test_a_file_is_summarised_as_tables(folder: str) -> None:
    with gateway_in_a_thread({}) as target:
        result = run(Path(folder) / "results.jsonl", "--target", target, "--group-by", "level")
    assert result.exit_code == 0, result.output
    for word in ("executable", "other", "easy", "hard", "unparsable", "1 of 3 samples failed"):
        assert word in result.stdout
    assert "the worst failures:\n  sample 1 b: 1 of 2 failed, executable" in result.stdout


def test_scripts_are_summarised_by_topic_steps_and_groups_of_models(tmp_path: Path) -> None:
    results = [
        scripts_result("t1", {"small": {"executable": False}, "large": {"executable": True}}),
        scripts_result("t2", {"small": {"executable": True}, "large": {"executable": True}}),
    ]
    for one, topic in zip(results, ("Food", "Travel"), strict=True):
        one.task.topic = topic
        for candidate in one.candidates:
            candidate.script.steps.add(text="one")
    folder = write_results(tmp_path / "out", results)
    groups = ("--model-group", "small=7B", "--model-group", "large=70B", "--group-by", "topic")
    with gateway_in_a_thread({}) as target:
        result = run(folder, "--target", target, *groups, "--group-by", "steps", "--json")
        table = run(folder, "--target", target, *groups)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert verdict_counts(found, tags={"model_group": "7B"}) == {"PASS": 1, "FAIL": 1, "ABSTAIN": 0}
    assert verdict_counts(found, tags={"model_group": "70B"}) == {"PASS": 2, "FAIL": 0, "ABSTAIN": 0}
    assert verdict_counts(found, tags={"topic": "Food"}, model="small") == {
        "PASS": 0,
        "FAIL": 1,
        "ABSTAIN": 0,
    }
    assert verdict_counts(found, tags={"steps": "1"}) == {"PASS": 3, "FAIL": 1, "ABSTAIN": 0}
    means = {one["model"]: one["means_by_measure"] for one in found["leaderboard"]}
    assert means == {"small": {"executable": 0.5}, "large": {"executable": 1.0}}
    lines = [line.split() for line in table.stdout.splitlines()]
    assert ["topic", "large", "small"] in lines
    assert ["Food", "100.0", "%", "0.0", "%"] in lines
    assert ["model_group", "executable"] in lines
    assert ["7B", "50.0", "%"] in lines


def test_a_group_of_models_has_a_name(folder: str) -> None:
    result = run(folder, "--model-group", "small")
    assert result.exit_code == 2
    assert "MODEL=GROUP" in result.stderr


@pytest.mark.parametrize(
    ("content", "message"), [('{"x": 1}', "line 1: is not a result"), ("{", "line 1"), ("", "no results")]
)
def test_a_file_without_results_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text(content, encoding="utf-8")
    with gateway_in_a_thread({}) as target:
        result = run(file, "--target", target)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not result.stdout


def test_a_gateway_that_does_not_answer_is_an_error(folder: str) -> None:
    result = run(folder, "--target", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "127.0.0.1:1: UNAVAILABLE" in result.stderr
