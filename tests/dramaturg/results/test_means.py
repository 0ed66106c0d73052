from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import t

from dramaturg.results.means import ends_above_zero, mean_of, mean_of_sums
from tests.dramaturg.results.test_leaderboard import sums

values = st.lists(
    st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=6), min_size=1, max_size=12
)


@given(values)
def test_the_interval_is_that_of_a_linearised_ratio(samples: list[list[float | None]]) -> None:
    judged = [[value for value in sample if value is not None] for sample in samples]
    judged = [sample for sample in judged if sample]
    mean, lower, upper = mean_of_sums(sums(samples), -math.inf, math.inf)[1:]
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
    if np.abs(residuals).max() < 1e-4:  # equal, or nearly: there may be no interval
        return
    # The residuals sum to 0, so their variance with K - 1 is what the formula asks for.
    error = np.sqrt(len(judged) * np.var(residuals, ddof=1)) / count
    margin = t.ppf(0.975, len(judged) - 1) * error
    assert upper == pytest.approx(ratio + margin, abs=1e-6)
    assert lower == pytest.approx(ratio - margin, abs=1e-6)


@given(st.lists(st.integers(1, 10).map(float), max_size=30))
def test_a_mean_lies_in_its_interval_and_the_interval_on_the_scale(values: list[float]) -> None:
    mean = mean_of(values, 1, 10)
    assert mean.n == len(values)
    if not values:
        assert mean.value is None
        return
    assert mean.value == pytest.approx(math.fsum(values) / len(values))
    if len(values) == 1:
        assert (mean.lower, mean.upper) == (None, None)
        return
    assert mean.value is not None
    if len(set(values)) == 1 and values[0] not in (1, 10):
        assert (mean.lower, mean.upper) == (None, None)
        return
    assert mean.lower is not None
    assert mean.upper is not None
    assert 1 <= mean.lower <= mean.value + 1e-9 <= mean.upper + 2e-9 <= 10 + 3e-9


def test_equal_values_at_an_end_of_the_scale_have_an_exact_interval() -> None:
    # Clopper and Pearson for 40 of 40, and for 0 of 10.
    mean = mean_of([1.0] * 40, 0, 1)
    assert (mean.lower, mean.upper) == pytest.approx((0.025 ** (1 / 40), 1.0))
    mean = mean_of([1.0] * 10, 1, 10)
    assert (mean.lower, mean.upper) == pytest.approx((1.0, 1 + 9 * (1 - 0.025 ** (1 / 10))))
    assert mean_of([0.0] * 10, 0, math.inf).upper is None


def test_an_interval_by_hand() -> None:
    # t(0.975, 3) = 3.182446; the standard deviation of 2, 4, 6, 8 is 2.581989.
    mean = mean_of([2, 4, 6, 8], -math.inf, math.inf)
    assert (mean.lower, mean.upper) == pytest.approx((5 - 4.108520, 5 + 4.108520), abs=1e-5)
    # On a scale from 0 to 20 the log odds are ln(5 / 15), and their margin is 4.108520 x 20 / (5 x 15).
    mean = mean_of([2, 4, 6, 8], 0, 20)
    ends = [20 * expit(math.log(1 / 3) + sign * 4.108520 * 20 / 75) for sign in (-1, 1)]
    assert (mean.lower, mean.upper) == pytest.approx(ends, abs=1e-5)


def test_an_interval_above_zero_by_hand() -> None:
    # The margin is 4.108520 of 5: exp(-0.821704) below, (1 - 0.821704 / 3)^-3 above.
    mean = mean_of([2, 4, 6, 8], 0, math.inf)
    assert (mean.lower, mean.upper) == pytest.approx((2.198405, 13.061202), rel=1e-4)
    # One of twenty: the cube root has a pole, so the logarithm is farther.
    mean = mean_of([1.0] + [0.0] * 19, 0, math.inf)
    reach = t.ppf(0.975, 19)
    assert (mean.lower, mean.upper) == pytest.approx((0.05 * math.exp(-reach), 0.05 * math.exp(reach)))


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.floats(1.0, 10))
def test_intervals_above_zero_widen_with_the_margin(value: float, margin: float, factor: float) -> None:
    below, above = ends_above_zero(value, margin)
    lower, upper = ends_above_zero(value, margin * factor)
    assert 0 <= lower <= below <= value <= above <= upper


def test_extreme_intervals_stay_on_the_scale() -> None:
    mean = mean_of([0.0, 1e-9], 0, 1)
    assert mean.lower is not None
    assert mean.upper is not None
    assert 0 <= mean.lower < mean.upper <= 1


@pytest.mark.slow
@pytest.mark.parametrize("samples", [10, 20, 50])
@pytest.mark.parametrize("rate", [0.6, 0.9, 0.95])
def test_intervals_of_pass_rates_cover(samples: int, rate: float) -> None:
    """Seven verdicts a sample with an intra-cluster correlation of .3. Student's interval covers .85."""
    generator = np.random.default_rng(1)
    covered = rounds = 0
    for _ in range(2000):
        shares = generator.beta(rate / 0.3 * 0.7, (1 - rate) / 0.3 * 0.7, samples)
        drawn = [(generator.random(7) < share).astype(float).tolist() for share in shares]
        mean = mean_of_sums(sums(drawn), 0, 1)
        rounds += 1
        covered += (mean.lower or 0) <= rate <= (mean.upper or 1)
    assert 0.925 <= covered / rounds <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize(("samples", "size"), [(20, 1), (50, 1), (10, 4), (20, 4)])
@pytest.mark.parametrize("spread", [0.5, 1.0])
def test_intervals_of_counts_cover(samples: int, size: int, spread: float) -> None:
    """Edit distances with a log-normal mean. On the logarithm alone the interval covers .92."""
    generator = np.random.default_rng(1)
    shared = generator.normal(size=(3000, samples, 1))
    quality = math.sqrt(0.7) * generator.normal(size=(3000, samples, size)) + math.sqrt(0.3) * shared
    counts = generator.poisson(np.exp(0.5 + spread * quality)).astype(float)
    means = [mean_of_sums(sums(drawn.tolist()), 0, math.inf) for drawn in counts]
    truth = math.exp(0.5 + spread**2 / 2)
    covered = sum((mean.lower or 0) <= truth <= (mean.upper or math.inf) for mean in means) / len(means)
    assert 0.93 <= covered <= 0.97


@given(st.lists(st.floats(1, 10), min_size=2, max_size=30))
def test_the_interval_of_single_values_is_students(values: list[float]) -> None:
    mean = mean_of(values, -math.inf, math.inf)
    if np.ptp(values) < 1e-3:  # equal, or nearly: there may be no interval
        return
    margin = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    assert mean.upper == pytest.approx(float(np.mean(values) + margin), abs=1e-5)
