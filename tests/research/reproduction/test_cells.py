from __future__ import annotations

import pytest

from dramaturg.tables.model import ABSENT
from dramaturg_research.reproduction.cells import average, number, probability


@pytest.mark.parametrize(("values", "shown"), [((0.5, 0.25), "0.375"), ((0.5, None), ABSENT), ((), ABSENT)])
def test_an_average_needs_every_figure_above_it(values: tuple[float | None, ...], shown: str) -> None:
    assert average([number(value, 2) for value in values], 3).text == shown


@pytest.mark.parametrize(("value", "shown"), [(0.0, "< 0.0001"), (0.00004, "< 0.0001"), (0.012, "0.0120")])
def test_a_small_probability_is_not_shown_as_zero(value: float, shown: str) -> None:
    assert probability(value, 4).text == shown
