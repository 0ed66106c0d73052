"""``dramaturg research ratings``: a sample of ratings goes to people and comes back as a rate."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import dialogue_pb2, verdict_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueResult,
    DialogueScript,
    ModelReply,
    ReplyRating,
)
from dramaturg.api.judging.v1.rating_judge_service_pb2 import Rating
from dramaturg.cli.main import app
from dramaturg_research.ratings.commands import COLUMNS


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["research", "ratings", *map(str, arguments)])


@pytest.fixture
def results(tmp_path: Path) -> Path:
    found = [
        DialogueResult(
            script=DialogueScript(
                id=str(number),
                task=SimulationTask(name="Shell"),
                utterances=[Utterance(speaker=dialogue_pb2.SPEAKER_USER, text="pwd")],
            ),
            replies=[ModelReply(model="m", text="/home")],
            ratings=[
                ReplyRating(model="m", judge="j", rating=Rating(value=8, rationale="Right.")),
                ReplyRating(
                    model="m", judge="k", rating=Rating(abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED)
                ),
            ],
        )
        for number in range(9)
    ]
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(MessageToDict(one)) + "\n" for one in found), encoding="utf-8")
    return file


def fill(sheet: Path, answers: list[tuple[str, str]]) -> None:
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows: list[Any] = list(csv.DictReader(file))
    for row, (reasonable, own) in zip(rows, answers, strict=False):
        row |= {"reasonable": reasonable, "own_rating": own}
    with sheet.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def test_a_sample_goes_to_people_and_comes_back_as_a_rate(results: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    assert run("sample", results, sheet, "--count", 6).exit_code == 0
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({row["script_id"] for row in rows}) == 6
    assert (rows[0]["dialogue"], rows[0]["reply"], rows[0]["rating"]) == ("USER: pwd", "/home", "8")
    assert {row["judge"] for row in rows} == {"j"}
    fill(sheet, [("yes", ""), ("Y", "2"), ("yes", ""), ("no", "5"), ("no", "9")])
    result = run("review", sheet, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["reasonable"], found["unreasonable"], found["unchecked"]) == (3, 2, 1)
    assert (found["too_high"], found["too_low"]) == (1, 1)
    # Wilson's interval for 3 of 5.
    share = found["reasonable_share"]
    assert share["value"] == 0.6
    assert (share["lower"], share["upper"]) == pytest.approx((0.2307, 0.8824), abs=1e-4)
    assert "3 of 5 ratings are reasonable: 0.60 (0.23 to 0.88)" in run("review", sheet).stdout


def test_all_rows_that_are_not_in_order_are_named(results: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    run("sample", results, sheet)
    fill(sheet, [("maybe", ""), ("no", "high"), ("yes", ""), ("perhaps", "")])
    result = run("review", sheet)
    assert result.exit_code == 2
    for problem in ("row 1: reasonable", "row 2: own_rating", "row 4: reasonable"):
        assert problem in result.stderr


@pytest.mark.parametrize(("answer", "problem"), [("maybe", "row 1: reasonable"), ("", "nothing was checked")])
def test_a_sheet_that_is_not_in_order_is_refused(
    results: Path, tmp_path: Path, answer: str, problem: str
) -> None:
    sheet = tmp_path / "sheet.csv"
    run("sample", results, sheet)
    fill(sheet, [(answer, "")])
    result = run("review", sheet)
    assert (result.exit_code, problem in result.stderr) == (2, True)


def test_another_file_is_no_sheet(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("id,label\n1,PASS\n", encoding="utf-8")
    result = run("review", file)
    assert (result.exit_code, "has no column 'reasonable'" in result.stderr) == (2, True)
