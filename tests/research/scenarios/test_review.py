"""``research scenarios review``: what people filled in becomes rows, and their agreement is measured."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.authoring import COLUMNS, write_scenario_sheet
from dramaturg.cli.main import app
from dramaturg_research.completed_sheets import read_sheet


def row(number: int, labels: str = "", **fields: str) -> dict[str, str]:
    annotators = {f"annotator_{name}": label for name, label in enumerate(labels.split(), start=1)}
    return {
        "id": f"1/option-1/{number}",
        "format": "verb_phrase_machine",
        "goal": "find the hours",
        "option_1": "ring the library",
        "option_2": "look online",
        "target": "option-1",
        "scenario": f"scenario {number}",
        "status": "accepted",
        "level": "hard",
        **annotators,
        **fields,
    }


# Three annotators: of the first form all agree once and two of three once; of the second all agree.
ROWS = [
    row(0, "1 1 1"),
    row(1, "1 2 option-1", level="Easy"),
    row(2, "either Either 2", status="Edited", edited_scenario="edited", gold="either", level=""),
    row(3, "1 1 1", format="user_profile"),
    row(4, "2 2 2", format="user_profile", gold="2"),
    row(5, "2 2 2", status="rejected"),
    row(6, status=""),
]


def review(*arguments: object) -> Result:
    return CliRunner().invoke(
        app, ["research", "scenarios", "review", *map(str, arguments)], env={"COLUMNS": "200"}
    )


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_reviewed_scenarios_become_rows_with_their_figures(tmp_path: Path, form: str) -> None:
    write_scenario_sheet(tmp_path, ROWS)
    result = review(tmp_path / f"review.{form}", "--out", tmp_path / "rows.jsonl", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["statuses"] == {"accepted": 4, "edited": 1, "not reviewed": 1, "rejected": 1}
    assert found["levels"] == {"hard": 3, "easy": 1, "either": 1}
    rows = [
        Parse(line, EvaluateDecisionsRequest()) for line in (tmp_path / "rows.jsonl").read_text().splitlines()
    ]
    assert [one.gold for one in rows] == [
        decision_pb2.CHOICE_OPTION_1,
        decision_pb2.CHOICE_OPTION_1,
        decision_pb2.CHOICE_EITHER,
        decision_pb2.CHOICE_OPTION_1,
        decision_pb2.CHOICE_OPTION_2,
    ]
    assert rows[2].decision.scenario == "edited"
    assert dict(rows[2].tags) == {"format": "verb_phrase_machine", "level": "either"}
    agreement = {one["format"]: one for one in found["agreement"]}
    assert agreement["user_profile"]["fleiss_kappa"]["value"] == pytest.approx(1)
    # By hand: P = (1 + 1/3 + 1/3) / 3; shares 5/9, 2/9, 2/9; Pe = 33/81.
    observed, expected = 5 / 9, 33 / 81
    kappa = agreement["verb_phrase_machine"]["fleiss_kappa"]["value"]
    assert kappa == pytest.approx((observed - expected) / (1 - expected), abs=1e-9)
    people = {(one["format"], one["level"]): one for one in found["annotators"]}
    assert (people["all", "all"]["n"], people["all", "all"]["correct"]) == (15, 13)
    assert people["all", "easy"]["accuracy"]["value"] == pytest.approx(2 / 3)
    assert people["verb_phrase_machine", "either"]["correct"] == 2


def test_tables_for_people(tmp_path: Path) -> None:
    write_scenario_sheet(tmp_path, ROWS)
    result = review(tmp_path / "review.csv", "--out", tmp_path / "rows.jsonl")
    assert result.exit_code == 0, result.output
    for text in ("Fleiss' kappa", "accuracy of people", "user_profile", "1 rejected", "5 rows to"):
        assert text in result.stdout


def test_without_labels_there_are_rows_and_no_figures(tmp_path: Path) -> None:
    write_scenario_sheet(tmp_path, [row(0)])
    result = review(tmp_path / "review.csv", "--out", tmp_path / "rows.jsonl", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["rows"], found["agreement"], found["annotators"]) == (1, [], [])


def test_a_sheet_that_is_not_in_order_is_refused_with_every_line(tmp_path: Path) -> None:
    bad = [
        row(0, status="maybe"),
        row(1, status="edited"),
        row(2, level="odd"),
        row(3, "1 4"),
        row(4, gold="both"),
        row(5, scenario=""),
    ]
    write_scenario_sheet(tmp_path, bad)
    out = tmp_path / "rows.jsonl"
    result = review(tmp_path / "review.csv", "--out", out)
    assert result.exit_code == 2
    for number, text in enumerate(
        ("status", "edited_scenario", "level", "annotator_2", "gold", "decision.scenario"), start=2
    ):
        assert f"line {number}: {text}" in result.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no rows"),
        ('{"a": 1}\n{', "line 2: is not JSON"),
        ("a,b\n1\n", "line 2: has 1 cells; the header has 2"),
    ],
)
def test_what_is_no_sheet_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "sheet"
    file.write_text(text, encoding="utf-8")
    result = review(file, "--out", tmp_path / "rows.jsonl")
    assert (result.exit_code, problem in result.stderr) == (2, True)


def test_both_forms_hold_the_same_whatever_is_in_a_cell(tmp_path: Path) -> None:
    odd: Any = {"id": "x", "scenario": 'He said "no",\nthen 走了; a|b', "status": "=1+1"}
    table, lines = write_scenario_sheet(tmp_path, [odd])
    assert [dict(one) for _, one in read_sheet(table)] == [dict(one) for _, one in read_sheet(lines)]
    with table.open(encoding="utf-8-sig", newline="") as file:
        (found,) = csv.DictReader(file)
    # No spreadsheet takes the cell for a formula.
    assert found == {**dict.fromkeys(COLUMNS, ""), **odd, "status": "'=1+1"}
