"""``labels align estimate``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.align import answer, run, write


def test_the_share_that_people_would_give(tmp_path: Path) -> None:
    rows = [
        {"item": index, "task": index // 2, "predicted": index % 3 > 0, "label": 1 if index < 40 else None}
        for index in range(400)
    ]
    found = answer("estimate", write(tmp_path / "v.jsonl", rows), "--cluster", "task")
    (mean,) = found["means"]
    assert (mean["system"], mean["labels"], mean["predictions"]) == ("all", 40, 400)
    assert mean["predictions_alone"] == pytest.approx(sum(index % 3 > 0 for index in range(400)) / 400)
    assert "labels alone" in run("estimate", str(tmp_path / "v.jsonl")).stdout
