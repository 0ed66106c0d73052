"""Intervals of the jackknife: their definition, and when they are withheld."""

from __future__ import annotations

from math import atanh, inf, sqrt, tanh

import numpy as np
import pytest
from scipy import stats

from dramaturg.results.means import mean_of
from services.alignment.bootstrap import Resampling
from services.alignment.estimates import Estimate, Scale, pseudo_values, with_jackknife

RESAMPLING = Resampling(1, 1, 0.95, lambda: None)


def test_the_jackknife_of_a_mean_is_students_interval() -> None:
    values = np.random.default_rng(1).normal(size=30)
    deleted = (values.sum() - values) / 29
    found = with_jackknife(float(values.mean()), 30, pseudo_values(float(values.mean()), deleted, 30), 0.95)
    low, high = stats.t.interval(0.95, 29, values.mean(), stats.sem(values))
    assert (found.lower, found.upper) == pytest.approx((low, high))


def test_multiplicities_are_repeated_units() -> None:
    pseudo, weights = np.array([0.0, 1.0, 4.0]), np.array([5.0, 2.0, 1.0])
    one = with_jackknife(0.5, 8, pseudo, 0.9, multiplicities=weights)
    other = with_jackknife(0.5, 8, np.repeat(pseudo, weights.astype(int)), 0.9)
    assert (one.lower, one.upper) == pytest.approx((other.lower, other.upper))


def test_fishers_z_keeps_a_correlation_within_its_range() -> None:
    pseudo = np.array([0.9, 0.95, 0.99, 0.7, 1.2, 0.98])
    found = with_jackknife(0.95, 6, pseudo, 0.95, Scale.CORRELATION)
    error = pseudo.std(ddof=1) / sqrt(6) / (1 - 0.95**2)
    reach = stats.t.ppf(0.975, 5) * error
    assert found.lower == pytest.approx(tanh(atanh(0.95) - reach))
    assert found.upper == pytest.approx(tanh(atanh(0.95) + reach))


def test_positive_figures_have_the_interval_of_means_above_zero() -> None:
    pseudo = np.array([2.0, 4.0, 6.0, 8.0])
    found = with_jackknife(5.0, 4, pseudo, 0.95, Scale.POSITIVE)
    mean = mean_of(pseudo.tolist(), 0, inf)
    assert (found.lower, found.upper) == pytest.approx((mean.lower, mean.upper), rel=1e-6)


@pytest.mark.parametrize(
    ("value", "pseudo", "reason"),
    [
        (0.3, [0.3], "there is one item or cluster"),
        (0.3, [0.3, 0.3, 0.3], "the values do not differ"),
        (0.3, [0.3, np.nan, 0.2], "it is undefined without one of the items or clusters"),
        (1.0, [1.0, 0.9, 0.8], "it is at an end of its scale"),
    ],
)
def test_intervals_are_withheld_where_nothing_is_seen_of_the_variance(
    value: float, pseudo: list[float], reason: str
) -> None:
    found = with_jackknife(value, 3, np.array(pseudo), 0.95, Scale.CORRELATION)
    assert found == Estimate(value, 3, withheld=reason)
