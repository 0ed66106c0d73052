"""``labels align aggregate``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.align import answer, write


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
