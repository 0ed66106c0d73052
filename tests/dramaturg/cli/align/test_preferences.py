"""``align preferences``."""

from __future__ import annotations

from pathlib import Path

from tests.support.align import answer, run, write


def test_ratings_and_win_rates(tmp_path: Path) -> None:
    rows = [
        {"prompt": index, "first": "a", "second": "b", "judged": ("first", "second", "tie", "")[index % 4]}
        for index in range(80)
    ]
    file = write(tmp_path / "p.jsonl", rows)
    found = answer("preferences", file, "--baseline", "b", "--resamples", "50")
    assert [one["system"] for one in found["ratings"]] == ["a", "b"]
    (rate,) = found["win_rates"]
    assert (rate["win_rate"], rate["draws"], rate["pairs"]) == (0.5, 20, 60)
    assert found["left_out"] == ["20 pairs without a preference"]
    assert "a pair has no lengths" in rate["undefined"]["length_controlled_win_rate"]
    assert "Elo" in run("preferences", file).stdout
