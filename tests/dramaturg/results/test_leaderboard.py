from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.leaderboard import leaderboard, mean_and_interval
from dramaturg.results.sums import ModelSums, SumAccumulator


def sums(samples: Sequence[Sequence[float | None]], model: str = "m", measure: str = "") -> ModelSums:
    total = SumAccumulator()
    for values in samples:
        total.add([RunResult() if value is None else RunResult(value=value) for value in values])
    return total.sums(model, measure)


values = st.lists(
    st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=6), min_size=1, max_size=12
)


@given(values)
def test_the_interval_is_that_of_a_linearised_ratio(samples: list[list[float | None]]) -> None:
    judged = [[value for value in sample if value is not None] for sample in samples]
    judged = [sample for sample in judged if sample]
    mean, lower, upper = mean_and_interval(sums(samples))
    if not judged:
        assert (mean, lower, upper) == (None, None, None)
        return
    # Independently: residuals of the ratio, sample by sample, and their variance.
    count = sum(map(len, judged))
    ratio = sum(map(sum, judged)) / count
    assert mean == pytest.approx(ratio)
    if len(judged) < 2:
        assert lower is None
        assert upper is None
        return
    residuals = np.array([sum(sample) - ratio * len(sample) for sample in judged])
    # The residuals sum to 0, so their variance with K - 1 is what the formula asks for.
    error = np.sqrt(len(judged) * np.var(residuals, ddof=1)) / count
    margin = t.ppf(0.975, len(judged) - 1) * error
    assert upper == pytest.approx(ratio + margin, abs=1e-6)
    assert lower == pytest.approx(ratio - margin, abs=1e-6)


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
