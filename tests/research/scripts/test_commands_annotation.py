"""Scripts drawn for people, and the labels that come back."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToJson
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1.script_pb2 import Script, Step, Task
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult, GoldAnswer, ScriptsResult
from dramaturg.cli.align import app as align
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.verdicts import passed
from dramaturg_research.scripts.commands import app


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def candidate(name: str, model: str, *steps: str) -> CandidateResult:
    return CandidateResult(
        candidate_id=name,
        model=model,
        script=Script(steps=[Step(text=step) for step in steps]),
        verdicts=[passed(one) for one in ABSEVAL],
    )


@pytest.fixture
def results(tmp_path: Path) -> Path:
    file = tmp_path / "results.jsonl"
    lines = []
    for number in range(10):
        candidates = [candidate("a", "writer-a", "=Boil water", "Pour"), candidate("b", "writer-b", "Wait")]
        if number:
            candidates.append(candidate("c", "writer-c"))
        result = ScriptsResult(
            task=Task(id=f"t{number}", goal="make tea", constraints=["in a cup", "for two"]),
            candidates=candidates,
            gold_answer=GoldAnswer(script=Script(steps=[Step(text="Boil"), Step(text="Pour")])),
        )
        lines.append(MessageToJson(result, indent=None))
    file.write_text("\n".join(lines) + "\n")
    return file


def read(sheet: Path) -> list[dict[str, str]]:
    with sheet.open(encoding="utf-8-sig", newline="") as opened:
        return list(csv.DictReader(opened))


def fill(sheet: Path, copy: Path, **labels: str) -> None:
    rows = [{**row, **labels} for row in read(sheet)]
    with copy.open("w", encoding="utf-8-sig", newline="") as opened:
        writer = csv.DictWriter(opened, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_a_sample_has_as_many_scripts_of_each_model_and_hides_model_and_verdicts(
    results: Path, tmp_path: Path
) -> None:
    sheet = tmp_path / "sheet.csv"
    assert run("sample", results, sheet, "--count", 7, "--seed", 3).exit_code == 0
    rows = read(sheet)
    names = [row["candidate_id"] for row in rows]
    assert sorted((names.count("a"), names.count("b"), names.count("c"))) == [0, 3, 4]
    assert len({(row["task_id"], row["candidate_id"]) for row in rows}) == 7
    assert "writer" not in sheet.read_text(encoding="utf-8-sig")
    assert not any(row[criterion] for row in rows for criterion in ABSEVAL)
    first = next(row for row in rows if row["candidate_id"] == "a")
    assert first["constraints"] == "in a cup\nfor two"
    assert first["script"] == "1. =Boil water\n2. Pour"
    assert first["gold_answer"] == "1. Boil\n2. Pour"
    again = tmp_path / "again.csv"
    run("sample", results, again, "--count", 7, "--seed", 3)
    assert again.read_bytes() == sheet.read_bytes()
    run("sample", results, again, "--count", 7, "--seed", 4)
    assert again.read_bytes() != sheet.read_bytes()
    run("sample", results, again, "--count", 100)
    assert len(read(again)) == 20


def test_labels_of_several_annotators_join_the_results(results: Path, tmp_path: Path) -> None:
    sheet, out = tmp_path / "sheet.csv", tmp_path / "labels.jsonl"
    run("sample", results, sheet, "--count", 6)
    copies = [tmp_path / name for name in ("ann.csv", "ben.csv", "cleo.csv")]
    for copy, label in zip(copies, ("Pass", "fail", "FAIL"), strict=True):
        fill(sheet, copy, executable=label, order_correct="pass", remark="=1+1")
    result = run("labels", *copies, "-o", out)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 18
    assert {row["annotator"] for row in rows} == {"ann", "ben", "cleo"}
    assert rows[0]["labels"] == {"executable": "pass", "order_correct": "pass"}
    accuracy = CliRunner().invoke(align, ["verdicts", str(results), "--labels", str(out), "--json"])
    assert accuracy.exit_code == 0, accuracy.output
    agreement = CliRunner().invoke(align, ["labels", str(out), "--json"])
    assert agreement.exit_code == 0, agreement.output


def test_all_problems_of_all_sheets_are_listed_and_nothing_is_written(results: Path, tmp_path: Path) -> None:
    sheet, out = tmp_path / "sheet.csv", tmp_path / "labels.jsonl"
    run("sample", results, sheet, "--count", 2)
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    fill(sheet, first, executable="good")
    fill(sheet, second, task_id="", order_correct="maybe")
    result = run("labels", first, second, "-o", out)
    assert result.exit_code == 2
    assert "6 problems" in result.output
    assert result.output.count("executable: is 'good', neither pass nor fail") == 2
    assert result.output.count("task_id: must not be empty") == 2
    assert not out.exists()
    result = run("labels", sheet, "-o", out)
    assert (result.exit_code, out.exists()) == (2, False)
    assert "the sheets have no label" in result.output


def test_scripts_that_labels_cannot_name_are_refused(results: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    results.write_text(results.read_text() * 2)
    result = run("sample", results, sheet)
    assert result.exit_code == 2
    assert "line 11: t0/a is the id of an earlier script" in result.output
    results.write_text(MessageToJson(ScriptsResult(task=Task(goal="x")), indent=None))
    assert "line 1: the task has no id" in run("sample", results, sheet).output
    assert not sheet.exists()
