from __future__ import annotations

import pytest

from dramaturg.results.groups import ordered_values


@pytest.mark.parametrize(
    ("values", "ordered"),
    [
        (["N/A", "easy", "hard", "medium"], ["easy", "medium", "hard", "N/A"]),
        (["High", "Low", ""], ["Low", "High", ""]),
        (["10", "9", "0", "unknown"], ["0", "9", "10", "unknown"]),
        (["10 to 20", "5 to 10"], ["5 to 10", "10 to 20"]),
        # One word of a scale beside other words is a name.
        (["hard", "Work", "easy"], ["Work", "easy", "hard"]),
    ],
)
def test_values_are_in_the_order_of_their_scale(values: list[str], ordered: list[str]) -> None:
    assert ordered_values(values) == ordered
    assert ordered_values(reversed(values)) == ordered
