"""``labels align aggregate``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.align import answer, run, write


def test_right_labels(tmp_path: Path) -> None:
    rows = [
        {"item": f"i{index}", "annotator": name, "label": "x" if (index + wrong) % 2 else "y"}
        for index in range(20)
        for name, wrong in (("a", 0), ("b", 0), ("c", int(index % 5 == 0)))
    ]
    out = tmp_path / "right.jsonl"
    found = answer("aggregate", write(tmp_path / "l.jsonl", rows), "--out", str(out))
    assert [one["label"] for one in found["items"][:2]] == ["y", "x"]
    assert found["annotators"][2]["consensus_share"] == pytest.approx(0.8)
    assert len(out.read_text(encoding="utf-8").splitlines()) == 20


def test_copies_are_named_and_have_no_labels_but_the_majority(tmp_path: Path) -> None:
    rows = [
        {"item": f"i{index}", "annotator": name, "label": "x" if (index + wrong) % 2 else "y"}
        for index in range(60)
        for name, wrong in (("a", 0), ("b", 0), ("c", int(index % 4 == 0)))
    ]
    file = write(tmp_path / "l.jsonl", rows)
    found = answer("aggregate", file)
    assert found["unidentified"] == "3 annotators that differ are needed, there are 2"
    assert found["items"][0] == {"item": "i0", "label": "", "probability": None, "majority": ["y"]}
    assert (found["annotators"], found["effective_annotators"]) == ([], 2)
    (pair,) = found["dependent_pairs"]
    assert (pair["first"], pair["second"]) == ("a", "b")
    printed = " ".join(run("aggregate", file).stdout.split())
    assert "no labels but the majority: 3 annotators that differ are needed, there are 2" in printed
    assert "worth 2 independent annotators" in printed
