from __future__ import annotations

import pytest
from scipy.stats import beta

from dramaturg.results.equivalence import lower_bound, upper_bound


@pytest.mark.parametrize(("hits", "total"), [(0, 1), (1, 1), (0, 7), (3, 7), (7, 7), (49, 50), (120, 400)])
@pytest.mark.parametrize("error", [0.025, 0.05, 0.2])
def test_bounds_are_quantiles_of_the_beta_distribution(hits: int, total: int, error: float) -> None:
    upper = 1 if hits == total else beta.ppf(1 - error, hits + 1, total - hits)
    lower = 0 if not hits else beta.ppf(error, hits, total - hits + 1)
    assert upper_bound(hits, total, error) == pytest.approx(upper, abs=1e-9)
    assert lower_bound(hits, total, error) == pytest.approx(lower, abs=1e-9)


def test_without_draws_nothing_is_known() -> None:
    assert (lower_bound(0, 0, 0.05), upper_bound(0, 0, 0.05)) == (0, 1)
