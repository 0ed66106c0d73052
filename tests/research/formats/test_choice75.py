"""The released format, small by hand and whole where the data is there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.cli.main import app
from dramaturg.service.validation import violations
from dramaturg_research.formats.choice75 import FORMATS, LEVELS, Reading, choose_demonstrations, read_folder

DEV_COUNTS = {
    "verb_phrase_manual": (65, 76, 36, 65),
    "verb_phrase_machine": (39, 26, 16, 47),
    "user_profile": (45, 70, 15, 65),
}
TABLE_1 = {
    "verb_phrase_manual": (65, 76, 36, 65),
    "verb_phrase_machine": (46, 41, 22, 50),
    "user_profile": (53, 76, 17, 73),
    "all": (164, 193, 75, 188),
}


def write_script(folder: Path, place: str, rows: list[Any], **branching: Any) -> None:
    file = folder / place
    file.parent.mkdir(parents=True, exist_ok=True)
    info = {
        "branching_step": "find out the hours",
        "option 1": "ring the library",
        "option 2": "look online",
        "freeform_ra": rows,
        **branching,
    }
    file.write_text(json.dumps({"goal": "borrow a book", "branching_info": info}), encoding="utf-8")


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["research", "convert", "choice75", *map(str, arguments)])


def test_a_row_becomes_a_decision(tmp_path: Path) -> None:
    write_script(tmp_path, "user_profile/dev/5.json", [["is mute", 2, "hard"], ["likes books", 0, "na"]])
    reading = read_folder(tmp_path)
    first, second = reading.requests
    assert (first.decision.id, first.decision.scenario) == ("user_profile/dev/5/0", "is mute")
    assert (first.decision.goal, first.decision.overall_goal) == ("find out the hours", "borrow a book")
    assert (first.decision.option_1, first.decision.option_2) == ("ring the library", "look online")
    assert (first.gold, second.gold) == (decision_pb2.CHOICE_OPTION_2, decision_pb2.CHOICE_EITHER)
    assert dict(first.tags) == {
        "source": "choice75",
        "format": "user_profile",
        "split": "dev",
        "level": "hard",
    }
    assert second.tags["level"] == "either"
    assert not reading.doubtful
    assert not reading.skipped


def test_rows_that_contradict_themselves_are_kept_and_named(tmp_path: Path) -> None:
    write_script(tmp_path, "user_profile/dev/82.json", [["x", 1, "na"], ["y", 0, "easy"], ["z", 1, "easy"]])
    reading = read_folder(tmp_path)
    assert [note.place for note in reading.doubtful] == [
        "user_profile/dev/82.json, row 0",
        "user_profile/dev/82.json, row 1",
    ]
    assert [request.gold for request in reading.requests] == [1, 3, 1]


def test_what_does_not_fit_is_named_and_left_out(tmp_path: Path) -> None:
    rows: list[Any] = [
        ["x", 3, "easy"],
        ["x", True, "easy"],
        ["x", 1, "odd"],
        "x",
        ["", 1, "easy"],
        ["y", 1, "easy"],
    ]
    write_script(tmp_path, "user_profile/dev/1.json", rows)
    write_script(tmp_path, "user_profile/dev/2.json", [], **{"option 1": None})
    (tmp_path / "user_profile/dev/3.json").write_text("{", encoding="utf-8")
    result = convert(tmp_path, tmp_path / "rows.jsonl")
    assert result.exit_code == 1
    assert result.stderr.count("left out") == 7 + 1
    assert "user_profile/dev/1.json, row 4: decision.scenario" in result.stderr
    assert "user_profile/dev/2.json: branching_info.option 1: must be a string" in result.stderr
    (line,) = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert json.loads(line)["decision"]["scenario"] == "y"


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    result = convert(tmp_path, tmp_path / "rows.jsonl")
    assert result.exit_code == 2
    assert "has none of the folders" in result.stderr
    result = convert(tmp_path, tmp_path / "rows.jsonl", "--split", "train", "--demonstrations", "3")
    assert result.exit_code == 2
    assert "drawn from train" in result.stderr


def test_demonstrations_are_balanced_seeded_and_no_more_than_there_are(tmp_path: Path) -> None:
    rows = [[f"{level} {gold}", gold, level] for level in ("easy", "medium", "hard") for gold in (1, 2)]
    rows += [[f"either {number}", 0, "na"] for number in range(4)]
    write_script(tmp_path, "verb_phrase_manual/train/1.json", rows)
    held_out = read_folder(tmp_path).requests
    nine = choose_demonstrations(held_out, 9, seed=1)
    assert Counter(one.choice for one in nine) == {1: 3, 2: 3, 3: 3}
    assert len({one.decision.scenario for one in nine}) == 9
    assert nine == choose_demonstrations(held_out, 9, seed=1)
    assert nine != choose_demonstrations(held_out, 9, seed=2)
    assert Counter(one.choice for one in choose_demonstrations(held_out, 3, seed=1)) == {1: 1, 2: 1, 3: 1}
    assert len(choose_demonstrations(held_out, 50, seed=1)) == 10
    assert choose_demonstrations([], 9, seed=1) == []


@pytest.fixture(scope="module")
def released(data_dir: Path) -> Reading:
    return read_folder(data_dir / "choice75")


def count(reading: Reading, name: str, splits: set[str]) -> tuple[int, ...]:
    levels = Counter(
        request.tags["level"]
        for request in reading.requests
        if request.tags["format"] == name and request.tags["split"] in splits
    )
    return tuple(levels[level] for level in LEVELS)


@pytest.mark.data
def test_all_sixteen_counts_of_table_1(released: Reading) -> None:
    # The hand-written format counts its dev part only: its train part is that of the machine's.
    counts = {
        name: count(released, name, {"dev"} if name == "verb_phrase_manual" else {"train", "dev"})
        for name in FORMATS
    }
    counts["all"] = tuple(map(sum, zip(*counts.values(), strict=True)))
    assert counts == TABLE_1


@pytest.mark.data
def test_the_counts_of_dev(released: Reading) -> None:
    assert {name: count(released, name, {"dev"}) for name in FORMATS} == DEV_COUNTS


@pytest.mark.data
def test_the_one_inconsistent_row_is_named_and_kept(released: Reading) -> None:
    (note,) = released.doubtful
    assert note.place == "user_profile/dev/82.json, row 2"
    (row,) = [one for one in released.requests if one.decision.id == "user_profile/dev/82/2"]
    assert (row.gold, row.tags["level"]) == (decision_pb2.CHOICE_OPTION_1, "either")
    assert not released.skipped


@pytest.mark.data
@pytest.mark.parametrize("seed", [0, 7])
def test_no_demonstration_is_scored(data_dir: Path, tmp_path: Path, seed: int) -> None:
    file = tmp_path / "dev.jsonl"
    result = convert(data_dir / "choice75", file, "--seed", seed)
    assert result.exit_code == 0
    rows = [Parse(line, EvaluateDecisionsRequest()) for line in file.read_text().splitlines()]
    assert len(rows) == 565
    scored = {(row.decision.goal, row.decision.scenario) for row in rows}
    for row in rows:
        assert not violations(row)
        assert row.tags["split"] == "dev"
        assert Counter(one.choice for one in row.demonstrations) == {1: 3, 2: 3, 3: 3}
        for one in row.demonstrations:
            assert one.decision.id.startswith(f"{row.tags['format']}/train/")
            assert (one.decision.goal, one.decision.scenario) not in scored
