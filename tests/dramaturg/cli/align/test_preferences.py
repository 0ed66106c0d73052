"""``labels align preferences``."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_prompts_may_be_whole_texts(tmp_path: Path) -> None:
    prompts = ["x" * 5000 + str(index % 20) for index in range(40)]
    rows = [
        {"prompt": prompt, "first": "a", "second": "b", "judged": ("first", "second", "tie")[index % 3]}
        for index, prompt in enumerate(prompts)
    ]
    (long,) = answer("preferences", write(tmp_path / "long.jsonl", rows))["win_rates"]
    short = [row | {"prompt": row["prompt"][-20:]} for row in rows]
    (same,) = answer("preferences", write(tmp_path / "short.jsonl", short))["win_rates"]
    # The pairs of a prompt are one unit of the jackknife, in any order of prompts.
    assert long["win_rate_interval"] == pytest.approx(same["win_rate_interval"])


def test_the_baseline_is_the_origin_of_ratings(tmp_path: Path) -> None:
    rows = [
        {"prompt": index, "first": "a", "second": "b", "judged": ("first", "second", "tie")[index % 3]}
        for index in range(30)
    ]
    found = answer("preferences", write(tmp_path / "p.jsonl", rows), "--baseline", "b")
    origin = next(one for one in found["ratings"] if one["system"] == "b")
    assert origin["interval_withheld"] == {"elo": "it is the origin of the ratings"}


def test_the_prior_of_ratings_is_named(tmp_path: Path) -> None:
    rows = [{"prompt": index, "first": "a", "second": "b", "judged": "first"} for index in range(30)]
    file = write(tmp_path / "p.jsonl", rows)
    found = answer("preferences", file, "--baseline", "b")
    assert found["rating_prior"] == "one more draw of every two systems that were compared"
    assert found["ratings"][0]["elo"] > 0
    assert found["rating_prior"] in run("preferences", file).stdout


def test_win_rates_say_what_they_are_adjusted_for(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": index,
            "first": "a",
            "second": "b",
            "judged": ("first", "second")[index % 3 == 0],
            "first_length": 90 + index,
            "second_length": 100,
        }
        for index in range(40)
    ]
    file = write(tmp_path / "p.jsonl", rows)
    (rate,) = answer("preferences", file, "--baseline", "b", "--resamples", "50")["win_rates"]
    assert (rate["adjusted_for"], rate["longer_share"]) == ("length alone", 0.725)
    assert "length alone" in run("preferences", file, "--baseline", "b").stdout
    short = write(tmp_path / "short.jsonl", [row | {"first_length": 10} for row in rows])
    found = run("preferences", short, "--baseline", "b").stdout
    assert "shorter in 100 % of the pairs" in " ".join(found.split())
