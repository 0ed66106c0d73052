from __future__ import annotations

from collections.abc import Sequence

import pytest

from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_NOT_SUPPORTED
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.leaderboard import leaderboard, primary_measure, scale_of
from dramaturg.results.means import ModelSums, SumAccumulator


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


def test_an_interval_does_not_reach_beyond_the_scale() -> None:
    entry = leaderboard([sums([[1.0], [1.0], [0.0]], "m")], "scripts")[0]
    assert 0 < entry.lower < 0.05
    assert 0.99 < entry.upper < 1


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


def test_a_model_below_the_minimum_coverage_is_listed_unranked_after_the_others() -> None:
    given = [
        sums([[1.0], [1.0], *([None] for _ in range(28))], "lucky"),
        sums([[1.0], [0.0]], "half"),
        sums([[0.0], [None]], "just enough"),
        sums([[None]], "silent"),
    ]
    entries = leaderboard(given, "scripts")
    assert [(entry.model, entry.rank) for entry in entries] == [
        ("half", 1),
        ("just enough", 2),
        ("lucky", 0),
        ("silent", 0),
    ]
    lucky = entries[2]
    assert (lucky.mean, lucky.mean_lowest, lucky.mean_highest) == (1.0, 2 / 30, 1.0)
    everyone = leaderboard(given, "scripts", minimum_coverage=0)
    assert [(entry.model, entry.rank) for entry in everyone][:2] == [("lucky", 1), ("half", 2)]


def test_judgements_that_are_not_asked_for_do_not_lower_the_coverage() -> None:
    total = SumAccumulator()
    total.add(
        [
            RunResult(value=1.0),
            *(RunResult(abstain_reason=ABSTAIN_REASON_NOT_SUPPORTED) for _ in range(3)),
        ]
    )
    (entry,) = leaderboard([total.sums("m", "")], "scripts")
    assert (entry.rank, entry.coverage) == (1, 1.0)


def test_the_bounds_are_those_of_the_scale() -> None:
    (entry,) = leaderboard([sums([[4.0], [None]], "m", "rating")], "dialogue")
    assert (entry.mean_lowest, entry.mean_highest) == ((4 + 1) / 2, (4 + 10) / 2)
    (entry,) = leaderboard([sums([[3.0], [None]], "m", "edit_distance")], "graphs", "edit_distance")
    assert entry.mean_lowest == 1.5
    assert not entry.HasField("mean_highest")
    (entry,) = leaderboard([sums([[3.0]], "m", "edit_distance")], "graphs", "edit_distance")
    assert entry.mean_highest == 3


@pytest.mark.parametrize(
    ("kind", "measures", "primary"),
    [
        ("scripts", ["executable", ""], ""),
        ("dialogue", ["win", "rating", "rating/x", "rating (aced)"], "rating"),
        ("decision", ["correct/story", "correct/naive, swapped", "correct/naive"], "correct/naive"),
        ("pair", ["win/llm", "win/roles k=2", "win/roles k=0"], "win/roles k=0"),
        ("pair", ["win/llm", "win/roles"], "win/roles"),
        ("decision", [], "correct"),
    ],
)
def test_setups_are_never_pooled_and_the_first_ranks(kind: str, measures: list[str], primary: str) -> None:
    assert primary_measure(kind, measures) == primary


@pytest.mark.parametrize("measure", ["rating", "rating/gpt", "rating (aced)"])
def test_a_part_of_a_measure_has_its_scale(measure: str) -> None:
    assert scale_of(measure) == (1.0, 10.0)
    assert scale_of("f1") == (0.0, 1.0)
