"""``labels align`` verdicts, calibration, bias and ranks, and the majorities of ``labels align labels``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dramaturg.cli.align import app
from tests.support.align import answer, run, write
from tests.support.results import scripts_result, write_results

LABELS = [
    {"item": "t1/a", "criterion": "executable", "annotator": who, "label": label}
    for who, label in (("ann", "PASS"), ("bob", "PASS"), ("cay", "FAIL"))
] + [
    {"item": "t1/b", "criterion": "executable", "annotator": "ann", "label": "FAIL"},
    {"item": "t1/a", "criterion": "order_correct", "annotator": "ann", "label": "PASS"},
    {"item": "t1/a", "criterion": "order_correct", "annotator": "bob", "label": "FAIL"},
    {"item": "t1/b", "criterion": "order_correct", "annotator": "bob", "label": "FAIL"},
]


def results(path: Path) -> str:
    verdicts: dict[str, dict[str, bool | None]] = {
        "a": {"executable": True, "order_correct": True},
        "b": {"executable": None, "order_correct": True},
        "c": {"executable": True, "order_correct": True},
    }
    return write_results(path, [scripts_result("t1", verdicts)], failed=["t2"])


def test_the_name_of_a_criterion_stays_whole_where_the_terminal_is_narrow(tmp_path: Path) -> None:
    labels = write(tmp_path / "labels.jsonl", LABELS)
    result = CliRunner().invoke(
        app, ["verdicts", results(tmp_path / "out"), "--labels", labels], env={"COLUMNS": "80"}
    )
    assert any("order_correct " in line for line in result.stdout.splitlines())


def test_verdicts_against_the_majority_of_people(tmp_path: Path) -> None:
    found = answer(
        *("verdicts", results(tmp_path / "out"), "--labels", write(tmp_path / "labels.jsonl", LABELS)),
        *("--set", "both=executable,order_correct,completes_goal"),
    )
    groups = {(one["criterion"], one["set"]): one for one in found["groups"]}
    assert list(groups) == [("", "all"), ("", "both"), ("executable", "all"), ("order_correct", "all")]
    both = groups["", "both"]
    assert both["criteria"] == ["executable", "order_correct", "completes_goal"]
    assert both["missing_criteria"] == ["completes_goal"]
    assert (both["items"], both["answered"], both["abstentions"]) == (3, 2, {"UNPARSABLE": 1})
    accuracies = {name: one["accuracy"] for name, one in both["policies"].items()}
    assert accuracies == pytest.approx({"excluded": 1 / 2, "wrong": 1 / 3, "worst-case": 1 / 3})
    assert both["policies"]["excluded"]["coverage"] == pytest.approx(2 / 3)
    assert both["policies"]["excluded"]["mean_squared_error"] == 0.5
    assert found["left_out"] == [
        "3 verdicts without a label of people",
        "1 items that people are undecided on",
        "1 samples without a result",
    ]


def test_labels_that_no_verdict_asks_for_are_told(tmp_path: Path) -> None:
    other = {"item": "kettel/a", "criterion": "executable", "annotator": "ann", "label": "PASS"}
    file = write(tmp_path / "labels.jsonl", [*LABELS, other])
    found = answer("verdicts", results(tmp_path / "out"), "--labels", file)
    assert "1 label without a verdict, such as that of kettel/a, executable" in found["left_out"]


def test_the_labels_of_the_samples_fit(tmp_path: Path) -> None:
    file = Path(__file__).parents[4] / "examples" / "scripts" / "labels.jsonl"
    verdicts: dict[str, bool | None] = {"no_duplicate_steps": True, "executable": True}
    samples = [scripts_result("soup", {"b": verdicts, "c": verdicts})]
    found = answer("verdicts", write_results(tmp_path / "out", samples), "--labels", str(file))
    (duplicates,) = [one for one in found["groups"] if one["criterion"] == "no_duplicate_steps"]
    # Script c has a planted duplicate.
    assert duplicates["policies"]["excluded"]["accuracy"] == 0.5
    agreement = answer("labels", str(file))
    assert {one["group"] for one in agreement["groups"]} > {"no_duplicate_steps", "executable"}


def test_labels_by_criterion_need_task_and_candidate(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"task_id": "t1", "labels": {"executable": "pass"}}]
    result = run("labels", write(tmp_path / "labels.jsonl", rows))
    assert result.exit_code == 2
    assert "labels.jsonl: line 1: has no task_id, candidate_id and labels" in " ".join(result.stderr.split())


def test_a_tie_label_decides_what_people_leave_open(tmp_path: Path) -> None:
    labels = write(tmp_path / "labels.jsonl", LABELS)
    found = answer("verdicts", results(tmp_path / "out"), "--labels", labels, "--tie-label", "FAIL")
    assert found["groups"][0]["items"] == 4


def test_verdicts_as_a_table(tmp_path: Path) -> None:
    labels = write(tmp_path / "labels.jsonl", LABELS)
    result = run("verdicts", results(tmp_path / "out"), "--labels", labels)
    assert result.exit_code == 0, result.output
    assert "worst-case" in result.stdout
    assert "undefined: " in result.stdout


def test_labels_that_are_neither_good_nor_bad_are_refused(tmp_path: Path) -> None:
    labels = write(tmp_path / "l.jsonl", [{"item": "a", "annotator": "x", "label": "maybe"}])
    refused = run("verdicts", results(tmp_path / "out"), "--labels", labels)
    assert refused.exit_code == 2
    assert "maybe" in refused.output


def test_majorities_are_written_and_read_again(tmp_path: Path) -> None:
    out = tmp_path / "majority.jsonl"
    answer("labels", write(tmp_path / "labels.jsonl", LABELS), "--majorities", str(out), "--resamples", "0")
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert rows[0] == {
        "item": "t1/a",
        "criterion": "executable",
        "label": "PASS",
        "votes": 2,
        "annotators": 3,
        "by_tie_label": False,
    }
    assert [row["label"] for row in rows] == ["PASS", "FAIL", None, "FAIL"]
    again = [{**row, "annotator": "majority"} for row in rows]
    found = answer("labels", write(tmp_path / "again.jsonl", again), "--resamples", "0")
    assert found["left_out"] == ["1 rows without a label"]


def test_calibration(tmp_path: Path) -> None:
    rows = [{"confidence": 0.9, "correct": index % 10 > 0, "judge": "j"} for index in range(100)]
    rows += [{"confidence": 0.6, "label": "PASS", "predicted": "FAIL", "judge": "k"}] * 20
    rows += [{"confidence": "", "correct": True}, {"confidence": 0.5, "label": "PASS", "predicted": ""}]
    file = write(tmp_path / "c.jsonl", rows)
    found = answer(
        "calibration", file, "--group-by", "judge", "--target-accuracy", "0.8", "--resamples", "50"
    )
    whole, j, _ = found["groups"]
    assert (whole["n"], whole["coverage"]) == (120, pytest.approx(120 / 122))
    assert [one["n"] for one in whole["bins"]] == [20, 100]
    assert j["expected_calibration_error"] == pytest.approx(0.0)
    assert whole["threshold"]["threshold"] == 0.9
    assert whole["threshold"]["held_out_accuracy"] == pytest.approx(0.9, abs=0.1)
    assert found["left_out"] == ["2 rows without an answer or a confidence"]
    assert "0.900 to 0.900" in run("calibration", file, "--target-accuracy", "0.8").stdout
    measured = [{"measured_confidence": one["confidence"], **one, "confidence": 0.1} for one in rows]
    file = write(tmp_path / "m.jsonl", measured)
    again = answer("calibration", file, "--confidence", "measured_confidence", "--resamples", "50")
    assert again["groups"][0]["mean_confidence"] == whole["mean_confidence"]


def test_bias(tmp_path: Path) -> None:
    rows = []
    for index in range(10):
        for first, second in (("a", "b"), ("b", "a")):
            rows.append(
                {"id": str(index), "first": first, "second": second, "judged": "first", "human": "tie"}
            )
    file = write(tmp_path / "b.jsonl", rows)
    (whole,) = answer("bias", file)["groups"]
    assert whole["first_share"] == 1.0
    assert whole["swaps"]["first_both"] == 10
    assert whole["swaps"]["consistent_share"] == 0.0
    assert whole["own_family"]["undefined"]["judge_share"] == "the judge's family is not named"
    assert whole["own_family"]["excess_bounds"] is None
    assert "the first shown" in run("bias", file).stdout


def test_ranks_by_groups_and_quantiles(tmp_path: Path) -> None:
    rows = [
        {
            "item": f"i{item}",
            "system": system,
            "judge": item + place,
            "people": place,
            "length": item,
            "note": "x",
        }
        for place, system in enumerate("abc")
        for item in range(8)
    ]
    file = write(tmp_path / "r.jsonl", rows)
    found = answer("ranks", file, "--quantiles", "length=2", "--resamples", "50")
    assert [(one["tag"], one["value"]) for one in found["groups"]] == [
        ("", ""),
        ("length", "0 to 3"),
        ("length", "4 to 7"),
    ]
    whole = found["groups"][0]
    assert list(whole["methods"]) == ["judge", "people"]
    assert [one["system"] for one in whole["methods"]["judge"]["systems"]] == ["c", "b", "a"]
    assert whole["correlations"][0]["kendall"] == 1.0
    assert whole["methods"]["judge"]["stability"] == pytest.approx(1.0)
    assert found["left_out"] == ["column 'note', which has no numbers"]
    assert "mean tau" in run("ranks", file).stdout


@pytest.mark.parametrize(
    ("command", "row", "problem"),
    [
        (
            "calibration",
            {"confidence": 2, "correct": True},
            "has '2' in column 'confidence', no number from 0 to 1",
        ),
        (
            "calibration",
            {"confidence": 1, "correct": "perhaps"},
            "has 'perhaps' in column 'correct', neither true nor false",
        ),
        ("calibration", {"correct": True}, "no column 'confidence'"),
        ("calibration", {"confidence": 0.5}, "no column 'label'"),
        ("bias", {"first": "a", "judged": "tie"}, "no column 'second'"),
        ("bias", {"first": "a", "second": "", "judged": "tie"}, "nothing in column 'second'"),
        ("bias", {"first": "a", "second": "b"}, "no column 'judged'"),
        (
            "bias",
            {"first": "a", "second": "b", "judged": "a"},
            "has 'a' in column 'judged', none of first, second and tie",
        ),
        ("ranks", {"item": "1", "system": "a", "m": "x"}, "no column of numbers"),
        ("ranks", {"system": "a", "m": 1}, "no column 'item'"),
        ("ranks", {"item": "", "system": "a", "m": 1}, "nothing in column 'item'"),
        ("labels", {"item": "a", "annotator": "x"}, "no column 'label'"),
    ],
)
def test_bad_rows_are_refused(tmp_path: Path, command: str, row: dict[str, Any], problem: str) -> None:
    refused = run(command, write(tmp_path / "x.jsonl", [row]))
    assert refused.exit_code == 2
    assert problem in " ".join(refused.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("ranks", ("--group-by", "--macro", "--cluster")),
        ("calibration", ("--group-by", "--cluster")),
        ("bias", ("--group-by",)),
        ("labels", ("--group-by", "--cluster")),
    ],
)
def test_a_column_that_an_option_names_and_the_file_has_not_is_refused(
    tmp_path: Path, command: str, options: tuple[str, ...]
) -> None:
    row = {"item": "i", "system": "s", "m": 1, "annotator": "x", "label": "1", "predicted": "1"}
    row |= {"confidence": 0.5, "first": "a", "second": "b", "judged": "tie"}
    file = write(tmp_path / "x.jsonl", [row])
    for option in options:
        refused = run(command, file, option, "absent")
        assert refused.exit_code == 2
        assert f"no column 'absent', which {option} names" in " ".join(refused.output.split())


def test_a_system_keeps_its_name_and_a_p_value_is_never_zero(tmp_path: Path) -> None:
    name = "vendor/LLaMa3-70b-Instruct"
    rows = [{"item": f"i{item}", "system": name, "rate": item / 9} for item in range(10)]
    shown = CliRunner().invoke(
        app, ["ranks", write(tmp_path / "r.jsonl", rows), "--resamples", "50"], env={"COLUMNS": "80"}
    )
    assert name in shown.stdout
    pairs = [{"id": str(n), "first": "a", "second": "b", "judged": "first"} for n in range(40)]
    stdout = run("bias", write(tmp_path / "b.jsonl", pairs)).stdout
    assert "against a half: p < 0.001" in stdout
    assert "no pair was judged in both orders" in stdout


def test_equal_systems_share_their_ranks_and_a_worse_one_does_not(tmp_path: Path) -> None:
    rows = [
        {"item": item, "system": name, "rate": (item * step) % 7 + best}
        for item in range(21)
        for name, step, best in (("a", 1, 9), ("b", 2, 9), ("c", 3, 0))
    ]
    file = write(tmp_path / "r.jsonl", rows)
    systems = answer("ranks", file)["groups"][0]["methods"]["rate"]["systems"]
    assert {one["system"]: one["rank_interval"] for one in systems} == {"a": [1, 2], "b": [1, 2], "c": [3, 3]}
    assert "difference" not in systems[0]
    last = systems[-1]
    assert last["difference"] == pytest.approx(-9)
    assert last["difference_interval"][0] < -9 < last["difference_interval"][1]
    assert 0 < last["p"] <= last["adjusted_p"] < 0.05
    assert "3 to 3" in run("ranks", file).stdout


def test_a_label_of_several_rows_is_refused_with_their_ids(tmp_path: Path) -> None:
    verdicts: dict[str, bool | None] = {"executable": True}
    samples = [scripts_result("soup", {"b": verdicts}), scripts_result("soup", {"b": verdicts})]
    label = {"item": "soup/b", "criterion": "executable", "annotator": "ann", "label": "PASS"}
    labels = write(tmp_path / "labels.jsonl", [label])
    found = run("verdicts", write_results(tmp_path / "out", samples), "--labels", labels)
    assert found.exit_code == 2
    assert "the label of 'soup/b' is of several items: 'soup/b' of row 1, 'soup/b' of row 2" in found.output
    # The id of a candidate alone, in two tasks.
    samples = [scripts_result("soup", {"b": verdicts}), scripts_result("tea", {"b": verdicts})]
    labels = write(tmp_path / "labels.jsonl", [label | {"item": "b"}])
    found = run("verdicts", write_results(tmp_path / "others", samples), "--labels", labels)
    assert found.exit_code == 2
    assert "'soup/b' of row 1, 'tea/b' of row 2" in found.output
