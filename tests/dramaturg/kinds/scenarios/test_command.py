"""``dramaturg research scenarios write`` as a user runs it, with an author made of a function."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_REFUSED
from dramaturg.api.generation.v1 import authoring_decisions_pb2
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    ScenarioBrief,
    WriteScenarioRequest,
    WriteScenarioResponse,
)
from dramaturg.cli.main import app
from tests.support.evaluations import gateway_in_a_thread
from tests.support.examples import EXAMPLES

pytestmark = pytest.mark.usefixtures("runs_enabled")

BRIEF = ScenarioBrief(goal="find the hours", option_1="ring the library", option_2="look online")


class Author:
    def __init__(self) -> None:
        self.asked: list[WriteScenarioRequest] = []

    async def __call__(self, request: WriteScenarioRequest) -> WriteScenarioResponse:
        self.asked.append(request)
        index, first = request.options.repeat_index, request.target == decision_pb2.CHOICE_OPTION_1
        if index == 2:
            return WriteScenarioResponse(failure="the model declined", abstain_reason=ABSTAIN_REASON_REFUSED)
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
    arguments = ("research", "scenarios", "write", *arguments)
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})


def sheet(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "review.jsonl").read_text().splitlines()]


def test_either_option_gets_so_many_and_the_sheet_says_what_is_wrong(briefs: Path, tmp_path: Path) -> None:
    author = Author()
    with gateway_in_a_thread({"author": {"WriteScenario": author}}) as target:
        result = run(
            *(briefs, "--target", target, "--count", 3, "--form", "hard-verb-phrase", "--model", "m"),
            *("--out", tmp_path / "out", "--json"),
        )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["scenarios"]
    assert found["brief_count"] == 1
    one, two, both = found["figures"]
    counts = ("scenario_count", "written_count", "usable_count", "leaking_count", "duplicate_count")
    assert [one[name] for name in counts] == [3, 2, 1, 0, 1]
    assert [two[name] for name in counts] == [3, 2, 0, 2, 1]
    assert [both[name] for name in counts] == [6, 4, 1, 2, 2]
    assert (both["model"], both["form"], both["target"]) == ("m", "hard-verb-phrase", "")
    assert both["failures_by_reason"] == {"REFUSED": 2}
    # Refusals are not usable; nothing abstains.
    assert both["usable_rate"]["value"] == pytest.approx(1 / 6)
    form = authoring_decisions_pb2.SCENARIO_FORM_HARD_VERB_PHRASE
    assert {(one.form, one.options.model) for one in author.asked} == {(form, "m")}
    lines = sheet(tmp_path / "out")
    with (tmp_path / "out" / "review.csv").open(encoding="utf-8-sig", newline="") as table:
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
    found = json.loads(result.stdout)["scenarios"]
    assert found["unchecked_briefs_by_reason"] == {"no service of the role 'embedding' is registered": 1}
    assert [line["near_duplicate_of"] for line in sheet(tmp_path / "out")] == ["", "1/option-1/0"]
    # The sheet of results is that of the command.
    for arguments, rows in (((), 1), (("--keep-duplicates",), 2)):
        again = CliRunner().invoke(
            app,
            [
                "research",
                "scenarios",
                "sheet",
                str(tmp_path / "out"),
                "-o",
                str(tmp_path / "again"),
                *arguments,
            ],
        )
        assert again.exit_code == 0, again.output
        assert sheet(tmp_path / "again") == sheet(tmp_path / "out")[:rows]


def test_tables_for_people_and_a_dry_run(briefs: Path, tmp_path: Path) -> None:
    with gateway_in_a_thread({"author": {"WriteScenario": Author()}}) as target:
        shown = run(briefs, "--target", target, "--count", 2, "--out", tmp_path / "out")
        planned = run(briefs, "--target", target, "--count", 2, "--dry-run", "--json")
    assert shown.exit_code == 0, shown.output
    for text in ("verb-phrase", "option-1", "both", "usable", "Near-duplicates of 1 briefs"):
        assert text in shown.stdout
    assert json.loads(planned.stdout)["samples"] == 1, planned.output


def test_results_of_another_kind_have_no_sheet(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"candidates": []}\n', encoding="utf-8")
    result = CliRunner().invoke(app, ["research", "scenarios", "sheet", str(tmp_path), "-o", str(tmp_path)])
    assert (result.exit_code, "has results of scripts" in result.stderr) == (2, True)


def test_bad_briefs_are_refused(briefs: Path) -> None:
    briefs.write_text('{"brief": {"goal": "x"}}\n', encoding="utf-8")
    result = run(briefs, "--target", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "line 1: brief.option_1" in result.stderr


@pytest.mark.parametrize(
    ("form", "file"),
    [("hard-verb-phrase", "demonstrations.jsonl"), ("user-profile", "demonstrations-profiles.jsonl")],
)
def test_the_four_examples_are_shown_in_place_of_those_of_the_row(
    tmp_path: Path, form: str, file: str
) -> None:
    author = Author()
    folder = EXAMPLES / "decisions"
    shown = ("--form", form, "--demonstrations", folder / file, "--count", 1)
    with gateway_in_a_thread({"author": {"WriteScenario": author}}) as target:
        result = run(folder / "briefs.jsonl", "--target", target, "--out", tmp_path / "out", *shown)
    assert result.exit_code == 0, result.output
    assert len(author.asked) == 4
    for request in author.asked:
        targets = [one.target for one in request.demonstrations]
        assert sorted(targets) == [1, 1, 2, 2]
        assert all(one.brief.overall_goal for one in request.demonstrations)
        if form == "user-profile":
            assert all(one.scenario.startswith("- Name: Doe\n- ") for one in request.demonstrations)
        else:
            assert all(one.base_scenario for one in request.demonstrations)
        assert request.brief not in [one.brief for one in request.demonstrations]


def test_a_demonstration_that_is_not_valid_is_refused_with_its_line(briefs: Path, tmp_path: Path) -> None:
    file = tmp_path / "demonstrations.jsonl"
    file.write_text('{"target": "CHOICE_OPTION_1", "scenario": "has no phone"}\n', encoding="utf-8")
    result = run(briefs, "--target", "127.0.0.1:1", "--demonstrations", file, "--out", tmp_path / "out")
    assert (result.exit_code, "line 1" in result.stderr, "brief" in result.stderr) == (2, True, True)
