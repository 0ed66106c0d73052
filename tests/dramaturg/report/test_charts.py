from __future__ import annotations

import pytest

from dramaturg.report.charts import Cell, Value, bars, heat_map, whisker


def test_cells_of_an_uncoloured_row_have_values_only() -> None:
    values = {("rating", "m"): Value(5.5, 2, 2), ("rude", "m"): Value(0.25, 2, 2)}
    rated, rude = heat_map(["rating", "rude"], ["m"], values, (1.0, 10.0), {"rude"}).cells
    assert (rated.share, rude.share, rude.text) == (0.5, None, "0.25")


@pytest.mark.parametrize(
    ("share", "ink"), [(None, "low"), (0.0, "low"), (0.5, "low"), (0.6, "mid"), (1.0, "high")]
)
def test_the_text_colour_depends_on_the_share(share: float | None, ink: str) -> None:
    assert Cell(0, 0, share, "", "").ink == ink


def test_a_whisker_is_clipped_to_its_scale() -> None:
    mark = whisker(5.5, 0.0, 20.0, (1.0, 10.0))
    assert mark is not None
    assert (mark.mean, mark.lower, mark.upper) == (50.0, 0.0, 100.0)
    assert whisker(None, None, None, (0.0, 1.0)) is None


def test_bars_are_relative_to_the_largest_count() -> None:
    assert [(bar.name, bar.length, bar.share) for bar in bars({"b": 2, "a": 4, "none": 0}, 8)] == [
        ("a", 100, 0.5),
        ("b", 50, 0.25),
    ]
