from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from dramaturg.results.means import quantile


@given(st.floats(0.501, 0.9999), st.integers(1, 100_000))
def test_quantiles_are_those_of_scipy(probability: float, degrees: int) -> None:
    assert quantile(probability, degrees) == pytest.approx(t.ppf(probability, degrees), rel=1e-6)


@pytest.mark.parametrize(("probability", "degrees"), [(0.5, 3), (1.0, 3), (0.975, 0)])
def test_what_has_no_quantile_is_refused(probability: float, degrees: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        quantile(probability, degrees)
