"""The released format, small by hand and whole where the data is there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import EvaluateDialoguesRequest, SimulateDialogueRequest
from dramaturg.cli.main import app

USER, SIMULATOR = dialogue_pb2.SPEAKER_USER, dialogue_pb2.SPEAKER_SIMULATOR


def row(number: int, turn: int, source: str = "a", **fields: Any) -> dict[str, Any]:
    history = [
        {"role": ("user", "assistant")[index % 2], "content": str(index)}
        for index in range(2 * (turn or 4) - 1)
    ]
    return {
        "id": number,
        "source_id": "1#Shell",
        "act": "Shell",
        "task_description": "Be a shell.",
        "type": "stateful",
        "source_file_name": source,
        "turn_num": turn,
        "dialogue_history": history,
        **fields,
    }


def task(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "act": name.partition("#")[2],
        "task_description": "Be it.",
        "request_type": "your command",
        "type": "stateless",
        **fields,
    }


def write(file: Path, rows: list[Any]) -> Path:
    file.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return file


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["research", "convert", "simulbench", *map(str, arguments)])


def scripts(file: Path) -> list[EvaluateDialoguesRequest]:
    return [Parse(line, EvaluateDialoguesRequest()) for line in file.read_text().splitlines()]


def tasks(file: Path) -> list[SimulateDialogueRequest]:
    return [Parse(line, SimulateDialogueRequest()) for line in file.read_text().splitlines()]


def test_the_kind_of_a_script_follows_from_its_place_in_its_dialogue(tmp_path: Path) -> None:
    rows = [row(0, 2), row(1, 3), row(2, 4), row(3, 0, "b"), row(4, 4, "c"), row(5, 3, "d"), row(6, 4, "d")]
    file = tmp_path / "out.jsonl"
    result = convert(write(tmp_path / "all.jsonl", rows), file)
    assert result.exit_code == 0, result.output
    found = scripts(file)
    assert [one.tags["subset"] for one in found] == [
        "first_challenge",
        "subsequent_challenge",
        "subsequent_challenge",
        "last_only",
        "subsequent_challenge",
        "first_challenge",
        "subsequent_challenge",
    ]
    first = found[0].script
    assert (first.id, first.task.id, first.task.name, first.turn) == ("0", "1#Shell", "Shell", 2)
    assert [one.speaker for one in first.utterances] == [USER, SIMULATOR, USER]
    assert first.task.kind == dialogue_pb2.SIMULATION_KIND_STATEFUL
    assert found[0].tags["kind"] == "stateful"
    # The last turn is the fourth, whatever the file calls it.
    assert found[3].script.turn == 4


def test_scripts_that_do_not_fit_are_named_and_left_out(tmp_path: Path) -> None:
    bad = [
        row(0, 2, type="odd"),
        row(1, 2, dialogue_history=[]),
        row(2, 2, dialogue_history=[{"role": "assistant", "content": "x"}]),
        row(3, 2, turn_num="2"),
        [],
        row(4, 2, act=""),
        row(5, 2),
    ]
    file = tmp_path / "out.jsonl"
    result = convert(write(tmp_path / "all.jsonl", bad), file)
    assert result.exit_code == 1
    assert "line 1: type: must be one of" in result.stderr
    assert "line 3: dialogue_history[0]" in result.stderr
    assert "line 6: script.task.name" in result.stderr
    assert "6 left out" in result.stderr
    assert [one.script.id for one in scripts(file)] == ["5"]


def test_tasks_take_their_overrides_by_id_or_by_name(tmp_path: Path) -> None:
    source = write(
        tmp_path / "tasks.jsonl",
        [task("0#Shell"), task("1#shell"), task("2#Twin"), task("3#Twin"), task("4#X")],
    )
    overrides = {
        "9#Shell": {"request_type": "one command", "strategy_type": "go on"},
        "3#Twin": {"strategy_type": "differ"},
        "8#Twin": {"strategy_type": "never"},
        "7#Gone": {},
    }
    (tmp_path / "config.json").write_text(json.dumps(overrides), encoding="utf-8")
    file = tmp_path / "out.jsonl"
    result = convert(source, file, "--tasks", "--overrides", tmp_path / "config.json")
    assert result.exit_code == 0, result.output
    made = {one.task.id: one.task for one in tasks(file)}
    assert (made["0#Shell"].request_type, made["0#Shell"].strategy_type) == ("one command", "go on")
    assert (made["1#shell"].request_type, made["1#shell"].strategy_type) == ("your command", "")
    assert (made["2#Twin"].strategy_type, made["3#Twin"].strategy_type) == ("", "differ")
    assert "'7#Gone'" in result.stderr
    assert "'8#Twin'" in result.stderr


def test_bad_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"id": 1}\n{', encoding="utf-8")
    assert "line 2: is not JSON" in convert(file, tmp_path / "out.jsonl").stderr
    assert convert(tmp_path / "none", tmp_path / "out.jsonl").exit_code == 2
    result = convert(file, tmp_path / "out.jsonl", "--overrides", file)
    assert (result.exit_code, "requires --tasks" in result.stderr) == (2, True)
    write(file, [task("0#Shell"), task("1#B", type="odd")])
    result = convert(file, tmp_path / "out.jsonl", "--tasks")
    assert (result.exit_code, len(tasks(tmp_path / "out.jsonl"))) == (1, 1)


@pytest.mark.data
def test_the_released_scripts_have_the_papers_counts(data_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    result = convert(data_dir / "simulbench" / "simulbench_all.jsonl", file)
    assert result.exit_code == 0, result.output
    found = scripts(file)
    assert Counter(one.tags["subset"] for one in found) == {
        "last_only": 225,
        "first_challenge": 93,
        "subsequent_challenge": 182,
    }
    first = Counter(one.tags["kind"] for one in found if one.tags["subset"] == "first_challenge")
    assert first == {"stateless": 38, "stateful": 55}
    (orphan,) = [one for one in found if one.script.id == "154"]
    assert orphan.tags["subset"] == "subsequent_challenge"
    # The same as was derived by hand from the released file.
    labels = json.loads((data_dir / "simulbench" / "derived_subset_labels.json").read_text())
    names = {"lastonly": "last_only", "firstchan": "first_challenge", "subseqchan": "subsequent_challenge"}
    assert {one.script.id: one.tags["subset"] for one in found} == {
        key: names[label] for key, label in labels.items()
    }


@pytest.mark.data
def test_the_released_tasks_have_the_papers_counts_the_right_way_round(
    data_dir: Path, tmp_path: Path
) -> None:
    folder, file = data_dir / "simulbench", tmp_path / "out.jsonl"
    result = convert(
        *(folder / "simulbench_tasks.jsonl", file, "--tasks"),
        *("--overrides", folder / "task_specific_config.json"),
    )
    assert result.exit_code == 0, result.output
    found = tasks(file)
    assert Counter(one.tags["kind"] for one in found) == {"stateless": 58, "stateful": 51}
    assert sum(bool(one.task.strategy_type) for one in found) == 7
