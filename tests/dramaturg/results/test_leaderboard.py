from __future__ import annotations

from collections.abc import Sequence

import pytest

from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.leaderboard import leaderboard, primary_measure, scale_of
from dramaturg.results.sums import ModelSums, SumAccumulator


def sums(samples: Sequence[Sequence[float | None]], model: str = "m", measure: str = "") -> ModelSums:
    total = SumAccumulator()
    for values in samples:
        total.add([RunResult() if value is None else RunResult(value=value) for value in values])
    return total.sums(model, measure)


def test_models_are_ranked_and_equal_ones_share_a_place() -> None:
    entries = leaderboard(
        [
            sums([[1.0], [1.0]], "best"),
            sums([[0.0], [1.0]], "half"),
            sums([[1.0], [0.0]], "other half"),
            sums([[None], [None]], "silent"),
            sums([[0.0], [0.0]], "worst"),
        ],
        "scripts",
    )
    assert [(entry.model, entry.rank) for entry in entries] == [
        ("best", 1),
        ("half", 2),
        ("other half", 2),
        ("worst", 4),
        ("silent", 0),
    ]
    silent = entries[-1]
    assert not silent.HasField("mean")
    assert silent.coverage == 0
    assert silent.judgement_count == 2


def test_an_interval_is_cut_at_the_ends_of_the_scale() -> None:
    entry = leaderboard([sums([[1.0], [1.0], [0.0]], "m")], "scripts")[0]
    assert entry.lower == 0
    assert entry.upper == 1


def test_fewer_edits_are_better() -> None:
    entries = leaderboard(
        [sums([[3.0]], "far", "edit_distance"), sums([[1.0]], "near", "edit_distance")],
        "graphs",
        "edit_distance",
    )
    assert [entry.model for entry in entries] == ["near", "far"]


def test_an_abstention_counts_neither_for_nor_against() -> None:
    entry = leaderboard([sums([[1.0, None], [0.0, None]], "m")], "scripts")[0]
    assert entry.mean == 0.5
    assert entry.coverage == 0.5
    assert (entry.judged_count, entry.judgement_count) == (2, 4)


@pytest.mark.parametrize(
    ("kind", "measures", "primary"),
    [
        ("scripts", ["executable", ""], ""),
        ("dialogue", ["win", "rating", "rating/x", "rating (aced)"], "rating"),
        ("decision", ["correct/story", "correct/naive, swapped", "correct/naive"], "correct/naive"),
        ("texts", ["win/llm", "win/roles k=2", "win/roles k=0"], "win/roles k=0"),
        ("texts", ["win/llm", "win/roles"], "win/roles"),
        ("decision", [], "correct"),
    ],
)
def test_setups_are_never_pooled_and_the_first_ranks(kind: str, measures: list[str], primary: str) -> None:
    assert primary_measure(kind, measures) == primary


@pytest.mark.parametrize("measure", ["rating", "rating/gpt", "rating (aced)"])
def test_a_part_of_a_measure_has_its_scale(measure: str) -> None:
    assert scale_of(measure) == (1.0, 10.0)
    assert scale_of("f1") == (0.0, 1.0)
