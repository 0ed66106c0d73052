from __future__ import annotations

import pytest

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.report.tables import (
    HEAT_STEPS,
    SHARE,
    Cell,
    Table,
    columns,
    interval_cell,
    p_sentence,
    p_value,
    percent,
    points,
    words,
)


def heated(*places: float | None) -> Table:
    return Table(
        "shares", columns(figures=map(str, places)), [[Cell(str(place), heat=place) for place in places]]
    )


def test_colours_spread_over_the_values_of_a_table() -> None:
    table = heated(0.5, 0.75, 1.0, None)
    shades = [table.shade(cell) for cell in table.rows[0] if cell.heat is not None]
    assert shades == [0, HEAT_STEPS // 2, HEAT_STEPS]
    assert [cell.text for cell in table.heat_ends()] == ["0.5", "1.0"]


def test_small_differences_have_similar_colours() -> None:
    for low in (0.0, 0.5, 0.99):
        table = heated(low, low + 0.01)
        first, last = (table.shade(cell) for cell in table.rows[0])
        assert 0 <= first <= last <= HEAT_STEPS
        assert last - first <= 1
    assert not heated(0.5, 0.5).heat_ends()


def test_a_drawn_interval_states_its_ends_or_that_there_is_none() -> None:
    whole = interval_cell(Estimate(value=0.5, lower=0.25, upper=0.75), SHARE, percent)
    assert whole.ends == "25 % to 75 %"
    assert whole.text == "50 %, 95 % interval 25 % to 75 %"
    alone = interval_cell(Estimate(value=0.5), SHARE, percent)
    assert alone.interval is not None
    assert alone.ends == "no interval"
    absent = interval_cell(Estimate(undefined="every item was abstained from"), SHARE, percent)
    assert (absent.text, absent.interval) == ("–", None)
    assert absent.title == "undefined: every item was abstained from"


@pytest.mark.parametrize(
    ("p", "cell", "sentence"), [(0.5, "0.500", "p = 0.500"), (0.0004, "<0.001", "p < 0.001")]
)
def test_no_p_value_is_shown_as_0(p: float, cell: str, sentence: str) -> None:
    assert p_value(p) == cell
    assert p_sentence(p) == sentence


def test_reasons_are_words_and_differences_of_shares_are_points() -> None:
    assert words("TIMED_OUT") == "timed out"
    assert words("No roles were generated") == "No roles were generated"
    assert points("0.2 %") == "0.2 pp"
    assert points("0.20") == "0.20"
