"""Formats of figures and counts."""

from __future__ import annotations

from dramaturg.cli.tables import estimated, interval, model_name, number
from dramaturg.results.quantities import counted
from dramaturg.tables.model import ABSENT, Cell, percent


def test_one_thing_is_no_things() -> None:
    assert [counted(count, "row") for count in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]


def test_what_is_undefined_is_no_zero_and_says_why() -> None:
    assert estimated(0.5, (0.25, 0.75), "").text == "0.500 [0.250, 0.750]"
    assert estimated(0.5, None, "").text == "0.500"
    assert estimated(None, None, "one label") == Cell(ABSENT, note="undefined: one label")
    assert [estimated(None, None, "").text, number(None), percent(None), interval(0.5, None)] == [ABSENT] * 4


def test_figures_have_the_digits_that_were_asked_for() -> None:
    assert (number(0.0), number(6.333, 2), number(-1.5)) == ("0.000", "6.33", "-1.500")
    assert interval(1, 2.346, 2) == "1.00 to 2.35"
    assert (percent(0.125, 1), percent(1), percent(0.996)) == ("12.5 %", "100 %", "99.6 %")


def test_a_model_without_a_name_is_the_default_one() -> None:
    assert (model_name("m"), model_name("")) == ("m", "(default)")
