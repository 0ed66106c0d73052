"""``dramaturg plan``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from dramaturg.cli.main import app
from tests.support.results import scripts_result, write_results


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["plan", *arguments], terminal_width=200, env={"COLUMNS": "200"})


def pilot(path: Path, failing: int) -> str:
    results = [
        scripts_result(f"t{task}", {"a": {"executable": (task + failing) % 5 > 0, "order_correct": True}})
        for task in range(60)
    ]
    return write_results(path, results)


def test_samples_for_a_margin(tmp_path: Path) -> None:
    folders = [pilot(tmp_path / "old", 0), pilot(tmp_path / "new", 1)]
    found = run(*folders, "--margin", "0.05", "--json")
    assert found.exit_code == 0, found.output
    figures = json.loads(found.stdout)
    assert figures["pilot"]["units"] == 60
    assert 60 < figures["units"] < figures["cautious_units"]
    larger = json.loads(run(*folders, "--margin", "0.1", "--json").stdout)
    assert larger["units"] < figures["units"] / 3
    by_effect = run(*folders, "--effect", "0.1")
    assert "needed" in by_effect.stdout
    assert "next: dramaturg eval FILE --limit" in by_effect.stderr
    half = json.loads(run(*folders, "--margin", "0.05", "--largest-task-loss", "0.5", "--json").stdout)
    assert half["units"] < figures["units"]
    assert (figures["fewest_units"], half["fewest_units"]) == (72, 36)
    shown = run(*folders, "--margin", "0.05").stdout
    assert "fewer than 72 samples are never GO at this margin where one sample may lose 1" in shown


def test_no_number_shows_no_difference(tmp_path: Path) -> None:
    found = run(pilot(tmp_path / "old", 0), pilot(tmp_path / "new", 1))
    assert found.exit_code == 1
    assert "the effect is 0" in found.output


def test_labels_for_the_width_of_an_interval(tmp_path: Path) -> None:
    rows = [
        {"item": str(index), "annotator": name, "label": str((index + (index % 7 == 0) * shift) % 2)}
        for index in range(50)
        for name, shift in (("a", 0), ("b", 1))
    ]
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = json.loads(run(str(file), "--half-width", "0.05", "--json").stdout)
    assert found["units"] > 50
    again = json.loads(run(str(file), "--half-width", "0.05", "--distance", "interval", "--json").stdout)
    # Of two labels all distances are one.
    assert again["units"] == found["units"]
    assert run(str(file), "--half-width", "0.05", "--distance", "other").exit_code == 2


def test_labels_by_several_criteria_are_of_one_item(tmp_path: Path) -> None:
    rows = [
        {"item": str(index), "criterion": name, "annotator": str(person), "label": label}
        for index in range(40)
        for name in ("executable", "order_correct")
        for person, label in enumerate(str((index + (index % 5 == 0) * shift) % 2) for shift in (0, 1))
    ]
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    one = tmp_path / "one.jsonl"
    alone = [json.dumps(row) for row in rows if row["criterion"] == "executable"]
    one.write_text("\n".join(alone), encoding="utf-8")
    found, single = (
        json.loads(run(str(path), "--half-width", "0.05", "--json").stdout) for path in (file, one)
    )
    # The second criterion repeats the first: it adds no items, and no certainty.
    assert found["pilot"]["units"] == 40
    assert abs(found["units"] - single["units"]) <= 0.05 * single["units"]


def test_items_for_the_test_of_a_judge(tmp_path: Path) -> None:
    rows = [
        {"item": item, "annotator": name, "label": int(item % every == place)}
        for item in range(60)
        for place, (name, every) in enumerate([("a", 7), ("b", 8), ("c", 9), ("gpt", 5)])
    ]
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    strict, lenient = (
        json.loads(run(str(file), "--judge", "gpt", "--epsilon", epsilon, "--json").stdout)
        for epsilon in ("0.2", "0.3")
    )
    assert strict["pilot"]["units"] == 60
    assert strict["units"] > lenient["units"] > 0
    assert "gpt in the place of half of the people" in run(str(file), "--judge", "gpt").stdout
    refused = run(str(file), "--judge", "gpt", "--epsilon", "0")
    assert refused.exit_code == 1
    assert "worse by epsilon or more" in refused.output
    assert run(str(file), "--judge", "gpt", "--half-width", "0.05").exit_code == 2
    assert run(str(file), "--judge", "other").exit_code == 2
