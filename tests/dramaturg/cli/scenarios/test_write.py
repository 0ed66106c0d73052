"""``dramaturg scenarios write`` as a user runs it, with an author made of a function."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.generation.v1 import authoring_decisions_pb2
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    ScenarioBrief,
    WriteScenarioRequest,
    WriteScenarioResponse,
)
from dramaturg.cli.main import app
from tests.support.evaluations import gateway_in_a_thread

BRIEF = ScenarioBrief(goal="find the hours", option_1="ring the library", option_2="look online")


class Author:
    def __init__(self) -> None:
        self.asked: list[WriteScenarioRequest] = []

    async def __call__(self, request: WriteScenarioRequest) -> WriteScenarioResponse:
        self.asked.append(request)
        index, first = request.options.repeat_index, request.target == decision_pb2.CHOICE_OPTION_1
        if index == 2:
            return WriteScenarioResponse(failure="the model declined")
        if not first:
            return WriteScenarioResponse(scenario="wants to ring the library", leaks_option=True)
        text = ("is far from any screen", "is FAR from any screen")[index]
        return WriteScenarioResponse(scenario=text, base_scenario="has no internet")


@pytest.fixture
def briefs(tmp_path: Path) -> Path:
    file = tmp_path / "briefs.jsonl"
    rows = [WriteScenarioRequest(brief=BRIEF)]
    file.write_text("".join(json.dumps(MessageToDict(row)) + "\n" for row in rows), encoding="utf-8")
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["scenarios", "write", *map(str, arguments)])


def test_either_option_gets_so_many_and_the_sheet_says_what_is_wrong(briefs: Path, tmp_path: Path) -> None:
    author = Author()
    with gateway_in_a_thread({"author": {"WriteScenario": author}}) as target:
        result = run(
            *(briefs, "--target", target, "--count", 3, "--form", "hard-verb-phrase", "--model", "m"),
            *("--out", tmp_path / "out", "--json"),
        )
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["briefs"], found["asked"], found["failed"]) == (1, 6, 2)
    assert (found["near_duplicates"], found["dropped"], found["leaking"], found["kept"]) == (2, 2, 1, 2)
    assert "1/option-1/2: the model declined" in result.stderr
    form = authoring_decisions_pb2.SCENARIO_FORM_HARD_VERB_PHRASE
    assert {(one.form, one.options.model) for one in author.asked} == {(form, "m")}
    lines = [json.loads(line) for line in Path(found["jsonl"]).read_text().splitlines()]
    with Path(found["csv"]).open(encoding="utf-8-sig", newline="") as table:
        assert list(csv.DictReader(table)) == lines
    first, second = lines
    assert (first["id"], first["target"], first["leaks_option"]) == ("1/option-1/0", "option-1", "no")
    assert (first["scenario"], first["base_scenario"]) == ("is far from any screen", "has no internet")
    assert (second["target"], second["leaks_option"]) == ("option-2", "yes")
    assert first["format"] == "verb_phrase_machine"
    assert not any(first[name] for name in ("status", "gold", "level", "annotator_1"))


def test_duplicates_can_be_kept_and_a_row_can_name_its_option(briefs: Path, tmp_path: Path) -> None:
    one: Any = WriteScenarioRequest(brief=BRIEF, target=decision_pb2.CHOICE_OPTION_1)
    briefs.write_text(json.dumps(MessageToDict(one)) + "\n", encoding="utf-8")
    with gateway_in_a_thread({"author": {"WriteScenario": Author()}}) as target:
        result = run(
            *(briefs, "--target", target, "--count", 2, "--keep-duplicates", "--json"),
            *("--out", tmp_path / "out"),
        )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["asked"], found["near_duplicates"], found["dropped"], found["kept"]) == (2, 1, 0, 2)
    assert found["unchecked"]
    lines = [json.loads(line) for line in Path(found["jsonl"]).read_text().splitlines()]
    assert [line["near_duplicate_of"] for line in lines] == ["", "1/option-1/0"]


def test_bad_briefs_are_refused(briefs: Path) -> None:
    briefs.write_text('{"brief": {"goal": "x"}}\n', encoding="utf-8")
    result = run(briefs, "--target", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "line 1: brief.option_1" in result.stderr
