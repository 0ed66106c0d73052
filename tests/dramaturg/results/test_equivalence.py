"""The bounds of certificates: their errors summed over all outcomes, and cases computed by hand."""

from __future__ import annotations

import math

import pytest
from scipy.stats import binom

from dramaturg.results.equivalence import (
    ERROR,
    NOT_SHOWN,
    OUTSIDE,
    WITHIN,
    conclude,
    difference_bounds,
    share_bounds,
    shift_bounds,
)

SHARES = (0.0, 0.01, 0.05, 0.2, 0.5, 0.77, 0.95, 0.99, 1.0)


@pytest.mark.parametrize("total", [1, 2, 5, 18, 40])
def test_each_bound_of_a_share_misses_it_at_most_at_its_error(total: int) -> None:
    bounds = [share_bounds(hits, total) for hits in range(total + 1)]
    for share in SHARES:
        chances = [float(binom.pmf(hits, total, share)) for hits in range(total + 1)]
        pairs = list(zip(bounds, chances, strict=True))
        assert sum(chance for (lower, _), chance in pairs if lower > share) <= ERROR + 1e-9, share
        assert sum(chance for (_, upper), chance in pairs if upper < share) <= ERROR + 1e-9, share


@pytest.mark.parametrize("total", [1, 4, 12])
def test_each_bound_of_a_shift_misses_it_at_most_at_its_error(total: int) -> None:
    shifts = [(up, down) for up in SHARES for down in SHARES if up + down <= 1]
    assert {shift: miss for shift in shifts if (miss := misses(*shift, total)) > ERROR + 1e-9} == {}


def misses(up: float, down: float, total: int) -> float:
    """How often the worse of the two bounds of a shift misses it."""
    below = above = 0.0
    for ups in range(total + 1):
        for downs in range(total + 1 - ups):
            rest = total - ups - downs
            ways = math.comb(total, ups) * math.comb(total - ups, downs)
            chance = ways * up**ups * down**downs * max(0.0, 1 - up - down) ** rest
            lower, upper = shift_bounds(ups, downs, total)
            below += chance * (lower > up - down + 1e-12)
            above += chance * (upper < up - down - 1e-12)
    return max(below, above)


def test_bounds_of_hand_computed_cases() -> None:
    # No hit in n: the upper bound is 1 - error ** (1 / n) (Clopper and Pearson 1934).
    assert share_bounds(0, 28) == pytest.approx((0, 1 - 0.05 ** (1 / 28)))
    assert share_bounds(28, 28) == pytest.approx((0.05 ** (1 / 28), 1))
    top = 1 - 0.025 ** (1 / 40)
    assert shift_bounds(0, 0, 40) == pytest.approx((-top, top))
    assert difference_bounds((10, 10), (0, 40)) == pytest.approx((0.025 ** (1 / 10) - top, 1))


@pytest.mark.parametrize(
    ("bounds", "conclusion"),
    [((-0.1, 0.1), WITHIN), ((-0.11, 0.1), NOT_SHOWN), ((0.11, 0.9), OUTSIDE), ((-0.9, -0.11), OUTSIDE)],
)
def test_conclusions(bounds: tuple[float, float], conclusion: str) -> None:
    assert conclude(*bounds, 0.1) == conclusion
