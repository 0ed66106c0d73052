from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.cli.main import app
from dramaturg.datasets.json_lines import LineError
from dramaturg.datasets.row_file import open_rows
from dramaturg_research.formats.coscript import convert, read_file, strip_number


def row(number: int = 1, goal: str = "Brew tea without a kettle", **fields: Any) -> dict[str, Any]:
    return {
        "id": number,
        "Abstract Goal": "Brew tea",
        "Specific Goal": goal,
        "Constraint": "without a kettle",
        "Script": ["1. Heat water in a pot.", "2. 2.5 g of leaves go in.", "10. Pour."],
        "Category": "Food",
        **fields,
    }


def test_a_row_becomes_a_task_with_one_candidate() -> None:
    (request,) = convert([("gpt", [row()])]).requests
    assert request.task.id == "1"
    assert request.task.goal == "Brew tea without a kettle"
    assert list(request.task.constraints) == ["without a kettle"]
    assert (request.task.topic, request.task.abstract_goal) == ("Food", "Brew tea")
    assert dict(request.tags) == {"topic": "Food"}
    (candidate,) = request.candidates
    assert (candidate.id, candidate.model) == ("gpt", "gpt")
    steps = [step.text for step in candidate.script.steps]
    assert steps == ["Heat water in a pot.", "2.5 g of leaves go in.", "Pour."]


def test_files_are_joined_by_id_and_specific_goal() -> None:
    conversion = convert(
        [("a", [row(1), row(2)]), ("b", [row(2), row(3), row(1, "Brew coffee")]), ("c", [row(1)])]
    )
    shown = [(one.task.id, one.task.goal[:8], [c.id for c in one.candidates]) for one in conversion.requests]
    assert shown == [
        ("1", "Brew tea", ["a", "c"]),
        ("2", "Brew tea", ["a", "b"]),
        ("3", "Brew tea", ["b"]),
        ("1", "Brew cof", ["b"]),
    ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (3, "not an object"),
        (row(id=None), "id"),
        (row(id=True), "id"),
        (row(goal=" "), "Specific Goal"),
        (row(Script="1. x"), "Script"),
        (row(Script=[1]), "Script"),
        (row(Category=3), "Category"),
        (row(goal="x" * 10_001), "task.goal"),
    ],
)
def test_a_row_that_does_not_fit_is_left_out_and_named(bad: Any, reason: str) -> None:
    conversion = convert([("gpt", [row(1), bad, row(2)])])
    assert [request.task.id for request in conversion.requests] == ["1", "2"]
    (skipped,) = conversion.skipped
    assert (skipped.source, skipped.row) == ("gpt", 1)
    assert reason in skipped.reason


def test_a_second_row_of_one_model_for_one_task_is_left_out() -> None:
    conversion = convert([("gpt", [row(1), row(1)])])
    assert len(conversion.requests[0].candidates) == 1
    assert "repeats the id 1" in conversion.skipped[0].reason


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("1. Mix.", "Mix."),
        ("12) Mix.", "Mix."),
        ("3.Mix.", "Mix."),
        (" 4: Mix. ", "Mix."),
        ("1、烧水", "烧水"),
        ("2.5 cups of flour", "2.5 cups of flour"),
        ("Mix 3. times", "Mix 3. times"),
        ("2 eggs", "2 eggs"),
        ("1.", ""),
    ],
)
def test_a_number_is_stripped_where_it_is_one(step: str, expected: str) -> None:
    assert strip_number(step) == expected


def test_both_forms_of_the_file_are_read(tmp_path: Path) -> None:
    rows = [row(1), row(2)]
    file = tmp_path / "model.json"
    for text in ("\ufeff" + json.dumps(rows), "\n".join(map(json.dumps, rows)) + "\n\n"):
        file.write_text(text, encoding="utf-8")
        assert read_file(file) == rows
    file.write_text('{"id": 1}\n{', encoding="utf-8")
    with pytest.raises(LineError, match=r"model\.json: line 2: is not JSON"):
        read_file(file)


def test_the_command_writes_rows_that_can_be_evaluated(tmp_path: Path) -> None:
    for name, rows in (("gpt", [row(1), row(2)]), ("llama", [row(1), 3])):
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))
    target = tmp_path / "tasks.jsonl"
    paths = [str(tmp_path / "gpt.json"), str(tmp_path / "llama.json"), str(target)]
    done = CliRunner().invoke(app, ["research", "convert", "coscript", *paths])
    assert done.exit_code == 1
    assert "llama: row 1: is not an object but int" in done.stderr
    with open_rows(str(target), EvaluateScriptsRequest) as file:
        assert file.check() == 2
        assert [len(one.request.candidates) for one in file] == [2, 1]


def test_files_that_would_name_the_same_model_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "gpt.json").write_text("[]")
    sources = [str(tmp_path / folder / "gpt.json") for folder in ("a", "b")]
    done = CliRunner().invoke(app, ["research", "convert", "coscript", *sources, str(tmp_path / "out.jsonl")])
    assert done.exit_code == 2
    assert "gpt" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["only.json"], ["none.json", "out.jsonl"]])
def test_wrong_usage_of_convert_is_exit_code_two(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["research", "convert", "coscript", *arguments]).exit_code == 2


@pytest.mark.data
def test_the_released_test_set_converts_whole(data_dir: Path) -> None:
    rows = read_file(data_dir / "coscript" / "test_data.json")
    conversion = convert([("human", rows)])
    assert len(rows) == len(conversion.requests) == 3000
    assert not conversion.skipped
    assert all(one.task.topic and one.candidates[0].script.steps for one in conversion.requests)
