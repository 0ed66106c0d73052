"""``research tasks expand`` and ``research scripts review``, with an author made of a function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, Parse
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.generation.v1.authoring_datasets_pb2 import (
    ExpandConstraintsRequest,
    ExpandConstraintsResponse,
    ExpandedTask,
)
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptRequest
from dramaturg.authoring import write_sheet
from dramaturg.cli.main import app
from dramaturg_research.completed_sheets import read_sheet
from dramaturg_research.tasks.script_task_sheet import COLUMNS
from tests.support.evaluations import gateway_in_a_thread


async def author(request: ExpandConstraintsRequest) -> ExpandConstraintsResponse:
    """One task a constraint asked for; "Fail" fails, and every second draw repeats the first."""
    if request.abstract_goal == "Fail":
        return ExpandConstraintsResponse(failure="the answer could not be read")
    words = ["online", "for two", "in winter"][: request.constraint_count or 3]
    tasks = [
        ExpandedTask(
            task=Task(
                goal=f"{request.abstract_goal} {' '.join(words[:count])}",
                constraints=words[:count],
                topic=request.topic,
                abstract_goal=request.abstract_goal,
            ),
            unworded_constraint_indices=[2] if count == 3 else [],
        )
        for count in range(1, len(words) + 1)
    ]
    return ExpandConstraintsResponse(tasks=tasks)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def expand(file: Path, out: Path, *options: object) -> Result:
    with gateway_in_a_thread({"author": {"ExpandConstraints": author}}) as target:
        return run("research", "tasks", "expand", file, "-o", out, "--target", target, "--json", *options)


def test_goals_of_plain_text_become_a_sheet(tmp_path: Path) -> None:
    goals = tmp_path / "goals.txt"
    goals.write_text("Buy zoo tickets\tLeisure\nFail\n\nPlant a tree\n", encoding="utf-8")
    result = expand(goals, tmp_path / "sheet", "--count", 2, "--model", "m")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["goals"], found["asked"], found["failed"], found["tasks"]) == (3, 6, 2, 12)
    # The second draw of a goal says the same; the tasks of one draw are alike and stay.
    assert (found["near_duplicates"], found["kept"], found["unworded"]) == (6, 6, 2)
    assert "2/1: the answer could not be read" in result.stderr
    assert "only equal words" in result.stderr
    rows = read_sheet(Path(found["csv"]))
    assert [row for _, row in rows] == [row for _, row in read_sheet(Path(found["jsonl"]))]
    first, third = rows[0][1], rows[2][1]
    assert (first["id"], first["topic"], first["goal"]) == ("1/0/1", "Leisure", "Buy zoo tickets online")
    assert (first["constraint_1"], first["constraint_2"], first["not_in_goal"]) == ("online", "", "")
    assert (third["constraint_3"], third["not_in_goal"]) == ("in winter", "in winter")
    answers = (tmp_path / "sheet" / "expansions.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(answers) == 6


def test_goals_are_requests_too_and_duplicates_can_be_kept(tmp_path: Path) -> None:
    goals = tmp_path / "goals.jsonl"
    request = ExpandConstraintsRequest(abstract_goal="Plant a tree", constraint_count=2)
    goals.write_text(json.dumps(MessageToDict(request)), encoding="utf-8")
    found = json.loads(expand(goals, tmp_path / "a", "--count", 2, "--keep-duplicates").stdout)
    assert (found["tasks"], found["near_duplicates"], found["kept"]) == (4, 2, 4)
    marked = [row["near_duplicate_of"] for _, row in read_sheet(Path(found["csv"]))]
    assert marked == ["", "", "1/0/1", "1/0/2"]
    assert json.loads(expand(goals, tmp_path / "b", "--constraints", 1).stdout)["tasks"] == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no goals"),
        ("x" * 2001, "line 1: abstract_goal"),
        ('{"abstract_goal": ""}', "abstract_goal"),
        ('{"goal": "x"}', "no such field"),
    ],
)
def test_bad_goals_are_named(tmp_path: Path, text: str, problem: str) -> None:
    goals = tmp_path / "goals"
    goals.write_text(text, encoding="utf-8")
    result = run("research", "tasks", "expand", goals, "-o", tmp_path / "sheet", "--target", "127.0.0.1:1")
    assert (result.exit_code, problem in result.stderr) == (2, True)


def row(number: int, **fields: str) -> dict[str, str]:
    return {
        "id": f"{number}/0/1",
        "abstract_goal": "Plant a tree",
        "constraint_1": "in winter",
        "goal": "Plant a tree in winter",
        "status": "accepted",
        **fields,
    }


def review(folder: Path, *rows: dict[str, str], options: tuple[Any, ...] = ()) -> Result:
    table, _ = write_sheet(folder, COLUMNS, rows)
    return run("research", "scripts", "review", table, "-o", folder / "tasks.jsonl", "--json", *options)


def tasks(folder: Path) -> list[Task]:
    lines = (folder / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    return [Parse(line, WriteScriptRequest()).task for line in lines]


def test_what_people_accept_and_edit_is_kept(tmp_path: Path) -> None:
    result = review(
        tmp_path,
        row(1),
        row(2, status="Edited", edited_goal="Plant an oak in March"),
        row(3, status="edited", edited_constraints="in winter | without a spade"),
        row(4, status="rejected"),
        row(5, status=""),
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["statuses"] == {"accepted": 1, "edited": 2, "not reviewed": 1, "rejected": 1}
    assert (found["rows"], found["unworded"]) == (3, 2)
    assert "line 3: the goal does not say 'in winter'" in result.stderr
    assert "line 4: the goal does not say 'without a spade'" in result.stderr
    accepted, reworded, narrowed = tasks(tmp_path)
    assert (accepted.goal, list(accepted.constraints)) == ("Plant a tree in winter", ["in winter"])
    assert (reworded.goal, list(reworded.constraints)) == ("Plant an oak in March", ["in winter"])
    assert list(narrowed.constraints) == ["in winter", "without a spade"]


def test_unreviewed_tasks_are_kept_on_request_where_their_goal_says_all(tmp_path: Path) -> None:
    rows = [row(1, status=""), row(2, status="", goal="Plant a tree soon"), row(3, status="rejected")]
    assert json.loads(review(tmp_path, *rows).stdout)["rows"] == 0
    assert json.loads(review(tmp_path, *rows, options=("--accept-unreviewed",)).stdout)["rows"] == 1


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([row(1, status="fine")], "line 2: status: is 'fine'"),
        ([row(1, status="edited")], "line 2: edited_goal"),
        ([row(1), row(1)], "line 3: id: '1/0/1' is repeated"),
        ([row(1, goal="")], "line 2: task.goal"),
    ],
)
def test_a_sheet_that_is_not_in_order_is_refused(
    tmp_path: Path, rows: list[dict[str, str]], problem: str
) -> None:
    result = review(tmp_path, *rows)
    assert (result.exit_code, problem in result.stderr) == (2, True)
