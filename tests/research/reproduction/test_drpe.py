"""The tables of DRPE from the released study, against figures that are calculated here."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from tests.support.reproductions import check_outputs, read_csv, released_pairs, reproduce

pytestmark = [pytest.mark.data, pytest.mark.timeout(540)]

LIMIT = 12


@pytest.mark.slow
def test_without_a_model_the_study_and_the_metrics_are_reproduced(data_dir: Path, tmp_path: Path) -> None:
    finished = reproduce("drpe", data_dir, tmp_path, "--offline", "--limit", str(LIMIT))
    assert finished.code == 0, finished.err
    check_outputs(tmp_path, "drpe", offline=True)
    study = {row["Figure"]: row for row in read_csv(tmp_path / "section-4-1.csv")}
    assert study["pairs"]["best"] == "81"
    shares = [study[f"{name} chosen by two or more, in percent"]["best"] for name in ("brio", "t0", "gpt3")]
    assert list(map(float, shares)) == pytest.approx([36, 8, 58])
    methods = {row["Method"]: row for row in read_csv(tmp_path / "table-1-methods.csv")}
    pairs = released_pairs(data_dir / "drpe" / "cnn_human.json")
    kept = [pairs[index * len(pairs) // LIMIT] for index in range(LIMIT)]
    longer = fmean((len(one) > len(other)) == first for one, other, first in kept)
    assert float(methods["longer"]["Accuracy"]) == pytest.approx(longer)
    assert methods["meteor"]["Pairs"] == str(LIMIT)
    bertscore = read_csv(tmp_path / "table-1.csv")[0]["BertScore"]
    assert -1 < float(bertscore) == float(methods["bertscore"]["Pearson"]) < 1
