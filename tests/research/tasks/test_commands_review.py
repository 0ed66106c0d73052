"""``dramaturg research tasks review``: what people filled in becomes rows of ``simulate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask
from dramaturg.authoring import write_sheet
from dramaturg.cli.main import app
from dramaturg_research.tasks.simulation_tasks import COLUMNS, read_review, sheet_row

ROW = {
    "id": "new/stateful/0/0",
    "kind": "stateful",
    "name": "Go board",
    "description": "Act as a Go board.",
    "request_type": "a move",
    "status": "accepted",
}


def review(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["research", "tasks", "review", *map(str, arguments)])


words = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=50
).filter(str.strip)


@given(words, words, words, st.sampled_from(["stateless", "stateful"]))
def test_an_accepted_task_comes_back_as_it_was(name: str, description: str, request: str, kind: str) -> None:
    number = dialogue_pb2.SimulationKind.Value(f"SIMULATION_KIND_{kind.upper()}")
    task = SimulationTask(id="t", name=name, description=description, request_type=request, kind=number)
    found = read_review([(2, {**sheet_row(task, "", "meaning", "m"), "status": "accepted"})])
    assert found.problems == []
    assert [one.task for one in found.requests] == [task]


def test_what_nobody_edited_stays() -> None:
    row = {**ROW, "status": "edited", "edited_name": "Small Go board", "edited_description": ""}
    (request,) = read_review([(2, row)]).requests
    assert (request.task.name, request.task.description) == ("Small Go board", "Act as a Go board.")
    assert request.task.request_type == "a move"


def test_edits_of_an_accepted_task_are_not_taken() -> None:
    (request,) = read_review([(2, {**ROW, "edited_name": "a thought"})]).requests
    assert request.task.name == "Go board"


def test_rows_that_nobody_reviewed_are_counted(tmp_path: Path) -> None:
    write_sheet(tmp_path, COLUMNS, [ROW, {**ROW, "id": "b", "status": ""}])
    result = review(tmp_path / "review.jsonl", "-o", tmp_path / "tasks.jsonl")
    assert result.exit_code == 0
    assert "1 accepted, 1 not reviewed; 1 tasks to" in result.stdout


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"status": "fine"}, "status: is 'fine', none of accepted, edited, rejected"),
        (
            {"status": "edited"},
            "edited_name, edited_description, edited_request_type: one must not be empty",
        ),
        ({"kind": "moody"}, "kind: is 'moody', none of stateless, stateful"),
        ({"description": ""}, "task.description: is required"),
        ({"name": "n" * 201}, "task.name"),
    ],
)
def test_a_sheet_that_is_not_in_order_is_refused_with_every_line(
    tmp_path: Path, changed: dict[str, str], problem: str
) -> None:
    write_sheet(tmp_path, COLUMNS, [ROW, {**ROW, "id": "b", **changed}, {**ROW}])
    result = review(tmp_path / "review.jsonl", "-o", tmp_path / "tasks.jsonl")
    assert result.exit_code == 2
    assert "2 problems" in result.stderr
    assert f"line 2: {problem}" in result.stderr
    assert "line 3: id: 'new/stateful/0/0' is repeated" in result.stderr
    assert not (tmp_path / "tasks.jsonl").exists()


def test_a_file_that_is_no_sheet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.jsonl").write_text(json.dumps(ROW) + "\n{", encoding="utf-8")
    assert "line 2: is not JSON" in review(tmp_path / "broken.jsonl", "-o", tmp_path / "x").stderr
    assert review(tmp_path / "absent.csv", "-o", tmp_path / "x").exit_code == 2


def test_another_file_is_no_sheet_and_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("id,label\n1,PASS\n", encoding="utf-8")
    (tmp_path / "tasks.jsonl").write_text("kept", encoding="utf-8")
    result = review(tmp_path / "labels.csv", "-o", tmp_path / "tasks.jsonl")
    assert (result.exit_code, "has no column 'status'" in result.stderr) == (2, True)
    assert (tmp_path / "tasks.jsonl").read_text(encoding="utf-8") == "kept"
