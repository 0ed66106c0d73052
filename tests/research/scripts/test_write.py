"""``dramaturg research scripts write`` as a user runs it, with an author made of a function."""

from __future__ import annotations

import json
from pathlib import Path

from google.protobuf.json_format import MessageToDict, Parse
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.script_pb2 import Script, Step, Task
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptRequest, WriteScriptResponse
from dramaturg.cli.main import app
from tests.support.command_line import read_jsonl
from tests.support.evaluations import gateway_in_a_thread


class Author:
    """Writes a script of one step; the model "shy" refuses the second task, and "mute" every one."""

    def __init__(self) -> None:
        self.asked: list[WriteScriptRequest] = []

    async def write(self, request: WriteScriptRequest) -> WriteScriptResponse:
        self.asked.append(request)
        model = request.options.model
        if model == "mute" or (model == "shy" and request.task.id == "2"):
            return WriteScriptResponse(failure="refused")
        sampling = request.options.sampling
        parameters = {setting.name: f"{value:g}" for setting, value in sampling.ListFields()}
        return WriteScriptResponse(
            text=f"1. {request.task.goal} as {model}.",
            script=Script(steps=[Step(text="x")]),
            provenance=Provenance(parameters=parameters),
        )


def run(folder: Path, author: Author, *options: object) -> Result:
    rows = [
        WriteScriptRequest(task=Task(id="1", goal="Plant", constraints=["now"], topic="Garden")),
        WriteScriptRequest(
            task=Task(id="2", goal="Dig"), options=JudgeOptions(model="own", sampling=Sampling(top_p=0.5))
        ),
    ]
    file = folder / "tasks.jsonl"
    file.write_text("\n".join(json.dumps(MessageToDict(row)) for row in rows), encoding="utf-8")
    with gateway_in_a_thread({"author": {"WriteScript": author.write}}) as target:
        arguments = [
            "research",
            "scripts",
            "write",
            file,
            "-o",
            folder / "out.jsonl",
            "--target",
            target,
            "--json",
        ]
        return CliRunner().invoke(app, list(map(str, [*arguments, *options])))


def rows(folder: Path) -> list[EvaluateScriptsRequest]:
    lines = (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()
    return [Parse(line, EvaluateScriptsRequest()) for line in lines]


def test_every_model_writes_for_every_task(tmp_path: Path) -> None:
    author = Author()
    options = ("--model", "a", "--model", "b", "--model", "a", "--temperature", 0.5, "--seed", 3)
    result = run(tmp_path, author, *options)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["tasks"], found["rows"], found["asked"], found["failed"]) == (2, 2, 4, 0)
    first, second = rows(tmp_path)
    assert first.task == Task(id="1", goal="Plant", constraints=["now"], topic="Garden")
    assert [(one.id, one.model, one.text) for one in first.candidates] == [
        ("a", "a", "1. Plant as a."),
        ("b", "b", "1. Plant as b."),
    ]
    assert dict(first.tags) == {"topic": "Garden", "constraints": "1", "sampling": "seed=3, temperature=0.5"}
    # What the row says of sampling stays where the command line says nothing.
    assert second.tags["sampling"] == "seed=3, temperature=0.5, top_p=0.5"
    assert {request.options.model for request in author.asked} == {"a", "b"}


def test_without_options_the_row_decides_and_no_temperature_is_sent(tmp_path: Path) -> None:
    author = Author()
    assert run(tmp_path, author).exit_code == 0
    first, second = rows(tmp_path)
    assert [one.id for one in first.candidates] == ["default"]
    assert [one.id for one in second.candidates] == ["own"]
    assert not any(request.options.sampling.HasField("temperature") for request in author.asked)


def test_scripts_that_there_are_not_are_counted_and_recorded(tmp_path: Path) -> None:
    result = run(tmp_path, Author(), "--model", "shy", "--model", "mute")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["tasks"], found["rows"], found["failed"]) == (2, 2, 3)
    assert found["failures"] == {"mute": {"refused": 2}, "shy": {"refused": 1}}
    assert "mute: 2 not written: refused" in result.stderr
    # A refusal is a candidate too, so that it counts against its model.
    refused = verdict_pb2.ABSTAIN_REASON_REFUSED
    found_rows = [[(one.id, one.failure_reason) for one in row.candidates] for row in rows(tmp_path)]
    assert found_rows == [[("shy", 0), ("mute", refused)], [("shy", refused), ("mute", refused)]]
    record = read_jsonl(tmp_path / "out.written.jsonl")
    assert [(one["task_id"], one["model"], one["response"].get("failure", "")) for one in record] == [
        ("1", "shy", ""),
        ("1", "mute", "refused"),
        ("2", "shy", "refused"),
        ("2", "mute", "refused"),
    ]
