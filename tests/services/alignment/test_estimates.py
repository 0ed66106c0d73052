from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from services.alignment.estimates import Estimate, clustered_proportion, proportion, with_percentiles


@pytest.mark.parametrize(
    ("hits", "count", "lower", "upper"),
    [  # Newcombe 1998, Statistics in Medicine 17, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_intervals_are_the_published_ones(hits: int, count: int, lower: float, upper: float) -> None:
    estimate = proportion(hits, count, 0.95, undefined="")
    assert (round(estimate.lower or 0.0, 4), round(estimate.upper or 0.0, 4)) == (lower, upper)
    assert estimate.interval_method == "wilson"


@given(st.integers(1, 5000), st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_wilson_intervals_agree_with_scipy(count: int, share: float, level: float) -> None:
    hits = round(share * count)
    expected = stats.binomtest(hits, count).proportion_ci(level, method="wilson")
    estimate = proportion(hits, count, level, undefined="")
    assert estimate.value == hits / count
    assert estimate.lower == pytest.approx(expected.low, abs=1e-12)
    assert estimate.upper == pytest.approx(expected.high, abs=1e-12)


def test_a_share_of_nothing_is_undefined() -> None:
    assert proportion(0, 0, 0.95, undefined="there are no items") == Estimate(
        None, 0, undefined="there are no items"
    )


def test_percentiles_say_how_many_resamples_they_rest_on() -> None:
    replicates = np.arange(1001.0)
    complete = with_percentiles(500.0, 30, replicates, 0.9)
    assert complete.lower == pytest.approx(50)
    assert complete.upper == pytest.approx(950)
    assert complete.interval_method == "bootstrap-percentile"
    replicates[:100] = math.nan
    partial = with_percentiles(500.0, 30, replicates, 0.9)
    assert partial.interval_method == "bootstrap-percentile (901 of 1001 resamples are defined)"
    assert partial.lower is not None
    assert partial.lower > 100


def test_there_is_no_interval_where_many_resamples_are_undefined() -> None:
    replicates = np.full(100, math.nan)
    replicates[:80] = 0.5
    assert with_percentiles(0.5, 30, replicates, 0.95) == Estimate(
        0.5, 30, withheld="only 80 of 100 resamples are defined"
    )
    assert with_percentiles(0.5, 30, np.empty(0), 0.95) == Estimate(
        0.5, 30, withheld="only 0 of 0 resamples are defined"
    )


def test_an_interval_without_width_is_withheld() -> None:
    estimate = with_percentiles(0.299, 9, np.full(1000, 0.299), 0.95)
    assert estimate == Estimate(0.299, 9, withheld="its resamples do not differ")


@pytest.mark.slow
@pytest.mark.parametrize("similarity", [0.1, 0.5])
@pytest.mark.parametrize("sizes", [[7] * 20, [1] * 10 + [5] * 6 + [30] * 4, list(range(1, 21))])
def test_intervals_of_shares_of_unequal_clusters_cover(sizes: list[int], similarity: float) -> None:
    """With one degree of freedom less than there are clusters, .85 at four large ones and .5."""
    generator, scale, covered = np.random.default_rng(1), 1 / similarity - 1, 0
    counts = np.array(sizes)
    for _ in range(1000):
        hits = generator.binomial(counts, generator.beta(0.7 * scale, 0.3 * scale, 20)).astype(np.float64)
        found = clustered_proportion(hits, counts.astype(np.float64), 0.95, undefined="")
        covered += found.lower is not None and found.upper is not None and found.lower <= 0.7 <= found.upper
    assert 0.92 <= covered / 1000 <= 0.98
