"""``dramaturg tasks write`` as a user runs it, with an author made of a function."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, Parse
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask
from dramaturg.api.evaluation.v1.dialogues_pb2 import SimulateDialogueRequest
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import (
    WriteSimulationTaskRequest,
    WriteSimulationTaskResponse,
)
from dramaturg.cli.main import app
from dramaturg.datasets.row_file import open_rows
from dramaturg_research.tasks.simulation_tasks import task_requests
from dramaturg_research.tasks.write import KindName
from tests.support.evaluations import gateway_in_a_thread

STATELESS, STATEFUL = dialogue_pb2.SIMULATION_KIND_STATELESS, dialogue_pb2.SIMULATION_KIND_STATEFUL
KNOWN = [
    SimulationTask(id=str(number), name=f"Task {number}", description=f"Act as {number}.", kind=kind)
    for kind, numbers in ((STATELESS, range(7)), (STATEFUL, range(7, 9)))
    for number in numbers
]


async def author(request: WriteSimulationTaskRequest) -> WriteSimulationTaskResponse:
    index = request.options.repeat_index
    if index == 3:
        return WriteSimulationTaskResponse(failure="the answer could not be read")
    # The second repeats the first, the third an example.
    texts = {0: "Act as a juggler.", 1: "act as  a juggler.", 2: "Act as 0."}
    name = f"New {request.kind} {index}"
    task = SimulationTask(name=name, description=texts[index], kind=request.kind)
    return WriteSimulationTaskResponse(task=task)


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    file = tmp_path / "tasks.jsonl"
    rows = [json.dumps(MessageToDict(SimulateDialogueRequest(task=task))) + "\n" for task in KNOWN]
    file.write_text("".join(rows), encoding="utf-8")
    return file


def run(*arguments: object, command: str = "write") -> Result:
    return CliRunner().invoke(app, ["tasks", command, *map(str, arguments)])


def test_new_tasks_are_rows_of_simulate(examples: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.jsonl"
    with gateway_in_a_thread({"author": {"WriteSimulationTask": author}}) as target:
        result = run(
            examples, out, "--target", target, "--count", 4, "--kind", "stateless", "--seed", 7, "--json"
        )
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["asked"], found["failed"], found["dropped"], found["kept"]) == (4, 1, 2, 1)
    assert "embedding" in found["unchecked"].casefold()
    assert found["uncompared"] == [f"new/stateless/7/{index}" for index in range(3)]
    assert "not compared by meaning: new/stateless/7/0, " in result.stderr
    assert "new/stateless/7/3: the answer could not be read" in result.stderr
    (row,) = [Parse(line, SimulateDialogueRequest()) for line in out.read_text().splitlines()]
    assert (row.task.id, row.task.description) == ("new/stateless/7/0", "Act as a juggler.")
    assert dict(row.tags) == {"kind": "stateless", "origin": "written"}


def test_a_task_with_the_name_of_another_one_is_a_double(examples: Path, tmp_path: Path) -> None:
    names = {0: "TASK  3", 1: "Lighthouse", 2: "lightHOUSE"}
    texts = {0: "Keep bees in winter.", 1: "Answer as a keeper of lamps.", 2: "Play a game of riddles."}

    async def named(request: WriteSimulationTaskRequest) -> WriteSimulationTaskResponse:
        index = request.options.repeat_index
        task = SimulationTask(name=names[index], description=texts[index], kind=request.kind)
        return WriteSimulationTaskResponse(task=task)

    out = tmp_path / "new.jsonl"
    with gateway_in_a_thread({"author": {"WriteSimulationTask": named}}) as target:
        options = ("--count", 3, "--kind", "stateless", "--target", target, "--json")
        result = run(examples, out, *options)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    # Of names that differ by case the first one stays.
    assert [row["task"]["name"] for row in rows] == ["Lighthouse"]


def test_people_accept_edit_and_reject_on_a_sheet(examples: Path, tmp_path: Path) -> None:
    with gateway_in_a_thread({"author": {"WriteSimulationTask": author}}) as target:
        result = run(
            *(examples, tmp_path / "new.jsonl", "--target", target, "--count", 3, "--kind", "stateless"),
            *("--model", "my-model", "--sheet", tmp_path, "--json"),
        )
    assert json.loads(result.stdout)["sheet"] == str(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "review.jsonl").read_text().splitlines()]
    assert [(one["id"], one["near_duplicate_of"]) for one in lines] == [
        ("new/stateless/0/0", ""),
        ("new/stateless/0/1", "new/stateless/0/0"),
        ("new/stateless/0/2", "0"),
    ]
    assert {one["model"] for one in lines} == {"my-model"}
    assert {one["compared_by"] for one in lines} == {"words"}
    with (tmp_path / "review.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == lines
    rows[0]["status"] = "Accepted"
    rows[1].update(status="edited", edited_description="Act as a juggler,\nwith five balls.")
    rows[2]["status"] = "rejected"
    with (tmp_path / "filled.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    result = run(tmp_path / "filled.csv", "--out", tmp_path / "tasks.jsonl", "--json", command="review")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["statuses"] == {"accepted": 1, "edited": 1, "rejected": 1}
    with open_rows(str(tmp_path / "tasks.jsonl"), SimulateDialogueRequest) as kept:
        assert kept.check() == found["rows"] == 2
        first, second = [row.request for row in kept]
    assert first.task == SimulationTask(
        id="new/stateless/0/0", name=f"New {STATELESS} 0", description="Act as a juggler.", kind=STATELESS
    )
    assert dict(first.tags) == {"kind": "stateless", "origin": "written", "review": "accepted"}
    assert (second.task.name, second.task.description) == (
        f"New {STATELESS} 1",
        "Act as a juggler,\nwith five balls.",
    )
    assert second.tags["review"] == "edited"


def test_a_sheet_that_cannot_be_written_is_said(examples: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with gateway_in_a_thread({"author": {"WriteSimulationTask": author}}) as target:
        result = run(
            *(examples, tmp_path / "new.jsonl", "--target", target, "--count", 1, "--kind", "stateless"),
            *("--sheet", tmp_path / "file"),
        )
    assert (result.exit_code, str(tmp_path / "file") in result.stderr) == (2, True)


def test_examples_are_of_the_kind_and_drawn_by_the_seed() -> None:
    stateless = [task for task in KNOWN if task.kind == STATELESS]
    requests = task_requests(KindName.STATELESS, stateless, 3, 5, 7, "m")
    assert requests == task_requests(KindName.STATELESS, stateless, 3, 5, 7, "m")
    assert requests != task_requests(KindName.STATELESS, stateless, 3, 5, 8, "m")
    drawn: list[Any] = []
    for index, request in enumerate(requests.values()):
        assert (request.kind, request.options.model, request.options.repeat_index) == (STATELESS, "m", index)
        names = [one.id for one in request.examples]
        assert len(set(names)) == 5
        drawn.append(names)
    assert drawn[0] != drawn[1]
    stateful = [task for task in KNOWN if task.kind == STATEFUL]
    (few,) = task_requests(KindName.STATEFUL, stateful, 1, 5, 7, "").values()
    assert len(few.examples) == 2


def test_a_kind_without_examples_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"task": {"name": "x", "description": "y"}}\n', encoding="utf-8")
    result = run(file, tmp_path / "new.jsonl", "--target", "127.0.0.1:1")
    assert (result.exit_code, "no stateless task" in result.stderr) == (2, True)


def test_where_nothing_can_be_written_nothing_is_asked(examples: Path, tmp_path: Path) -> None:
    asked: list[Any] = []

    async def never(request: WriteSimulationTaskRequest) -> WriteSimulationTaskResponse:
        asked.append(request)
        return await author(request)

    with gateway_in_a_thread({"author": {"WriteSimulationTask": never}}) as target:
        for destination in (tmp_path / "absent" / "new.jsonl", tmp_path):
            result = run(examples, destination, "--target", target, "--count", 1)
            assert (result.exit_code, str(destination) in result.stderr) == (2, True)
    assert not asked
