from __future__ import annotations

import asyncio
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from dramaturg.service import installed
from dramaturg.testing import serve
from services.alignment.app import AlignmentSettings, App
from tests.support.align import answer, run, write

HUMAN = [1, 2, 3, 4, 5, 6, 2, 4]
GOOD = [1, 2, 2, 4, 6, 5, 3, 4]
LENGTH = [9, 1, 8, 2, 7, 3, 6, 4]


def score_rows() -> list[dict[str, Any]]:
    return [
        {"id": f"s{index}", "who": f"w{index}", "human": human, "good": good, "length": length, "flat": 1}
        for index, (human, good, length) in enumerate(zip(HUMAN, GOOD, LENGTH, strict=True))
    ]


def test_scores_as_json(tmp_path: Path) -> None:
    file = write(tmp_path / "scores.jsonl", score_rows())
    found = answer("scores", file, "--seed", "3")
    assert list(found["measures"]) == ["flat", "good", "length"]
    good = found["measures"]["good"]
    assert good["pearson"] == pytest.approx(stats.pearsonr(HUMAN, GOOD).statistic)
    assert good["spearman"] == pytest.approx(stats.spearmanr(HUMAN, GOOD).statistic)
    assert good["kendall"] == pytest.approx(stats.kendalltau(HUMAN, GOOD).statistic)
    assert good["n"] == 8
    lower, upper = good["kendall_interval"]
    assert lower <= good["kendall"] <= upper
    assert found["measures"]["flat"]["pearson"] is None
    assert found["measures"]["flat"]["undefined"]["pearson"] == "all scores of flat are equal"
    assert [(one["first"], one["second"]) for one in found["differences"]] == [
        ("flat", "good"),
        ("flat", "length"),
        ("good", "length"),
    ]
    assert 0 < found["differences"][2]["williams_p"] < 1
    assert found["left_out"] == ["column 'who', which has no numbers"]
    assert (found["seed"], found["resamples"], found["confidence_level"]) == (3, 2000, 0.95)
    assert found == answer("scores", file, "--seed", "3")
    assert found != answer("scores", file, "--seed", "4")


def test_csv_gives_what_json_lines_give(tmp_path: Path) -> None:
    rows = score_rows()
    del rows[2]["good"]
    lines = [",".join(rows[0])]
    lines += [",".join(str(row.get(name, "")) for name in rows[0]) for row in rows]
    table = tmp_path / "scores.csv"
    table.write_text("\ufeff" + "\r\n".join(lines) + "\r\n", encoding="utf-8")
    found = answer("scores", str(table))
    assert found == answer("scores", write(tmp_path / "scores.jsonl", rows))
    assert found["measures"]["good"]["n"] == 7


def test_scores_as_a_table(tmp_path: Path) -> None:
    result = run("scores", write(tmp_path / "scores.jsonl", score_rows()), "--resamples", "100")
    assert result.exit_code == 0
    expected = stats.kendalltau(HUMAN, GOOD).statistic
    assert f"{expected:.3f} [" in result.stdout
    assert "undefined: all scores of flat are equal" in result.stdout
    assert "left out: column 'who', which has no numbers" in result.stderr


def test_a_name_is_no_measure_also_where_it_is_a_number(tmp_path: Path) -> None:
    rows = [{**row, "id": index, "item": str(index)} for index, row in enumerate(score_rows())]
    found = answer("scores", write(tmp_path / "scores.jsonl", rows), "--resamples", "0")
    assert list(found["measures"]) == ["flat", "good", "length"]


def test_rows_that_people_did_not_score_are_counted(tmp_path: Path) -> None:
    rows = [*score_rows(), {"good": 3}, {"human": None, "good": 2}]
    found = answer("scores", write(tmp_path / "scores.jsonl", rows), "--resamples", "0")
    assert found["left_out"][-1] == "2 rows without a human score"
    assert found["measures"]["good"]["n"] == 8
    assert "pearson_interval" not in found["measures"]["good"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "has no rows"),
        (
            '{"human": 1, "m": 2}\n{"human": 1, "m": "x"}\n',
            "line 2: has something other than a finite number",
        ),
        ('{"human": 1, "m": 2}\n{"human": 1, "m": NaN}\n', "line 2: is not JSON: NaN is no number"),
        ('{"human": 1}\n\n[1]\n', "line 3: is not a JSON object"),
        ('{"human": 1}\n{"human": \n', "line 2: is not JSON"),
        ('{"m": 1}\n{"m": 2}\n', "0 rows with a number in column"),
        ("human,m\n1,2\n1\n", "line 3: has 1 cells; the header has 2"),
    ],
)
def test_bad_scores_are_refused_with_their_line(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "scores.txt"
    file.write_text(content, encoding="utf-8")
    result = run("scores", str(file))
    assert result.exit_code == 2
    assert problem in " ".join(result.output.replace("│", " ").split())


def label_rows() -> list[dict[str, Any]]:
    return [
        {"item": item, "annotator": annotator, "criterion": criterion, "label": label}
        for criterion, labels in (
            ("executable", ["PASS PASS", "PASS FAIL", "FAIL FAIL"]),
            ("order", ["PASS PASS"] * 2),
        )
        for item, both in enumerate(labels)
        for annotator, label in zip(("ann", "ben"), both.split(), strict=True)
    ]


def test_labels_as_json_by_criterion(tmp_path: Path) -> None:
    found = answer(
        "labels", write(tmp_path / "labels.jsonl", [*label_rows(), {"item": 9, "annotator": "ann"}])
    )
    whole, executable, order = found["groups"]
    assert (whole["group"], executable["group"], order["group"]) == ("", "executable", "order")
    assert (whole["n"], executable["n"], order["n"]) == (5, 3, 2)
    assert executable["observed_agreement"] == pytest.approx(2 / 3)
    (pair,) = executable["pairs"]
    assert (pair["first"], pair["second"], pair["n"]) == ("ann", "ben", 3)
    assert pair["cohen_kappa"] == pytest.approx((2 / 3 - 4 / 9) / (1 - 4 / 9))
    assert order["fleiss_kappa"] is None
    assert order["undefined"]["fleiss_kappa"] == "all annotations have the same label"
    assert executable["majority_labels"] == {"": 1, "FAIL": 1, "PASS": 1}
    assert found["left_out"] == ["1 rows without a label"]


def test_labels_as_a_table(tmp_path: Path) -> None:
    result = run("labels", write(tmp_path / "labels.jsonl", label_rows()))
    assert result.exit_code == 0
    for text in ("executable", "ann - ben", "(none)", "undefined: all annotations have the same label"):
        assert text in result.stdout


def test_sets_and_numbers(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("item,annotator,label\n1,a,x|y\n1,b,x\n2,a,z\n2,b,z\n", encoding="utf-8")
    (group,) = answer("labels", str(table), "--distance", "masi")["groups"]
    assert group["majority_labels"] == {"": 1, "z": 1}
    assert 0 < group["krippendorff_alpha"] < 1
    (apart,) = answer("labels", str(table))["groups"]
    assert apart["krippendorff_alpha"] < group["krippendorff_alpha"]
    result = run("labels", str(table), "--distance", "ordinal")
    assert result.exit_code == 1
    assert "is not one finite number" in result.output


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"item": 1, "annotator": "a", "label": "x"}] * 2, "line 2: labels item '1' a second time"),
        ([{"item": 1, "label": "x"}], "no column 'annotator'"),
        ([{"item": 1, "label": "x", "annotator": ""}], "line 1: names no annotator"),
        ([{"item": 1, "annotator": "a", "label": ""}], "no row with something in column"),
    ],
)
def test_bad_labels_are_refused_with_their_line(
    tmp_path: Path, rows: list[dict[str, Any]], problem: str
) -> None:
    result = run("labels", write(tmp_path / "labels.jsonl", rows))
    assert result.exit_code == 2
    assert problem in " ".join(result.output.replace("│", " ").split())


def test_without_the_service_a_target_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_services", dict)
    result = run("scores", write(tmp_path / "scores.jsonl", score_rows()))
    assert result.exit_code == 2
    assert "--target" in result.output


def test_a_service_that_cannot_be_reached_ends_the_command(tmp_path: Path) -> None:
    file = write(tmp_path / "scores.jsonl", score_rows())
    result = run("scores", file, "--target", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "127.0.0.1:1: UNAVAILABLE" in result.output


async def test_a_running_service_is_used(tmp_path: Path) -> None:
    file = write(tmp_path / "scores.jsonl", score_rows())
    async with App(AlignmentSettings()).open() as contracts, serve(*contracts) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from dramaturg.cli.align import app; app()"),
            *("scores", file, "--target", server.target, "--json"),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0
    assert math.isfinite(json.loads(output)["measures"]["length"]["pearson"])


def test_notes_explain_figures_that_seem_to_contradict(tmp_path: Path) -> None:
    rows = [
        {"item": item, "annotator": name, "label": "no" if item < 5 and name == "bob" else "yes"}
        for item in range(100)
        for name in ("ann", "bob")
    ]
    file = write(tmp_path / "labels.jsonl", rows)
    (note,) = answer("labels", file)["groups"][0]["notes"]
    assert "chance alone" in note
    assert f"all: {note[:40]}" in run("labels", file).stdout


def people_and_judge(items: int, wrong: int) -> list[dict[str, object]]:
    """Three people who err on different items, and a judge that errs on every item of some number."""
    return [
        {
            "item": item,
            "annotator": name,
            "label": "no" if item % every == place % every else "yes",
        }
        for item in range(items)
        for place, (name, every) in enumerate([("ann", 9), ("bob", 10), ("eve", 11), ("gpt", wrong)])
    ]


def test_a_judge_that_may_replace_people_is_said_so(tmp_path: Path) -> None:
    good = write(tmp_path / "good.jsonl", people_and_judge(120, 13))
    found = answer("labels", good, "--judge", "gpt")["groups"][0]["replacement"]
    assert (found["passed"], found["winning_rate"], found["epsilon"]) == (True, 1.0, 0.2)
    assert [one["annotator"] for one in found["annotators"]] == ["ann", "bob", "eve"]
    assert all(one["p"] <= one["adjusted_p"] <= 0.05 for one in found["annotators"])
    shown = run("labels", good, "--judge", "gpt").stdout
    assert "the judge may replace people: it takes the place of 1.000 of them" in shown
    bad = write(tmp_path / "bad.jsonl", people_and_judge(120, 2))
    assert (
        "the judge may not replace people" in run("labels", bad, "--judge", "gpt", "--epsilon", "0.1").stdout
    )
    shown = run("labels", good, "--judge", "ann2").stdout
    assert "no answer whether the judge may replace people: ann2 labelled no item" in shown
