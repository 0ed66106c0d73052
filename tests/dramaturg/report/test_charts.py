from __future__ import annotations

from dramaturg.report.charts import (
    FULL_HEAT,
    HEAT_STEPS,
    bar,
    colour,
    describe,
    drawn,
    heat_ends,
    heat_range,
    shade,
    strength,
)
from dramaturg.tables.model import Cell, Column, Table, columns, count


def test_an_interval_is_clipped_to_its_scale() -> None:
    mark = drawn(Cell("5.5", 5.5, (0.0, 20.0), scale=(1.0, 10.0)))
    assert mark is not None
    assert (mark.mean, mark.lower, mark.upper) == (50.0, 0.0, 100.0)
    alone = drawn(Cell("5.5", 5.5, scale=(1.0, 10.0)))
    assert alone is not None
    assert (alone.mean, alone.lower) == (50.0, None)
    assert drawn(Cell("–", scale=(0.0, 1.0))) is None


def test_the_bounds_that_abstentions_leave_are_drawn_on_the_scale() -> None:
    mark = drawn(Cell("5.5", 5.5, (4.0, 7.0), scale=(1.0, 10.0), extremes=(1.0, 20.0)))
    assert mark is not None
    assert mark.ends == (0.0, 100.0)


def test_bars_are_relative_to_the_largest_count() -> None:
    table = Table("reasons", columns("reason", figures=[Column("count", bars=True)]))
    table.add_row("a", count(4))
    table.add_row("b", count(2))
    assert [bar(cell, table, 1).mean for cell in table.column(1)] == [100, 50]


def test_a_figure_says_what_it_rests_on() -> None:
    cell = Cell("50 %", 0.5, ends="25 to 75 %", judged=12, total=1400, note="test: exact")
    assert describe(cell) == "12 of 1,400 judged, 95 % interval 25 to 75 %, test: exact"
    assert not describe(Cell("50 %", 0.5))


def heated(*places: float | None) -> Table:
    return Table(
        "shares", columns(figures=map(str, places)), [[Cell(str(place), heat=place) for place in places]]
    )


def test_colours_spread_over_the_values_of_a_table() -> None:
    table = heated(0.5, 0.75, 1.0, None)
    ends = heat_range(table)
    shades = [shade(cell, ends) for cell in table.rows[0].cells if cell.heat is not None]
    assert shades == [0, HEAT_STEPS // 2, HEAT_STEPS]
    assert [cell.text for cell in heat_ends(table)] == ["0.5", "1.0"]


def test_a_colour_is_paler_where_few_are_judged() -> None:
    whole, half, few = (Cell("50 %", 0.5, heat=0.5, judged=judged) for judged in (FULL_HEAT, 15, 2))
    assert [strength(one) for one in (whole, half, few)] == [3, 1, 0]
    assert strength(Cell("3", 3, heat=0.5)) == 3
    shades = [colour(one, (0.0, 1.0)) for one in (whole, half, few)]
    assert shades == sorted(shades)


def test_small_differences_have_similar_colours() -> None:
    for low in (0.0, 0.5, 0.99):
        table = heated(low, low + 0.01)
        first, last = (shade(cell, heat_range(table)) for cell in table.rows[0].cells)
        assert 0 <= first <= last <= HEAT_STEPS
        assert last - first <= 1
    assert not heat_ends(heated(0.5, 0.5))
