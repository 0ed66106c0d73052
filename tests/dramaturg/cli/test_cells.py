"""Formats of figures and counts."""

from __future__ import annotations

from dramaturg.cli.cells import (
    ABSENT,
    counted,
    estimated,
    interval,
    model_name,
    number,
    p_value,
    percent,
)
from dramaturg.cli.tables import Noted


def test_one_thing_is_no_things() -> None:
    assert [counted(count, "row") for count in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]


def test_no_p_value_is_zero() -> None:
    assert [p_value(p) for p in (1.0, 0.0123, 0.0001, 0.00002, 0.0, None)] == [
        "1.0000",
        "0.0123",
        "0.0001",
        "<0.0001",
        "<0.0001",
        ABSENT,
    ]


def test_what_is_undefined_is_no_zero_and_says_why() -> None:
    assert estimated(0.5, (0.25, 0.75), "") == "0.500 [0.250, 0.750]"
    assert estimated(0.5, None, "") == "0.500"
    assert estimated(None, None, "one label") == Noted(ABSENT, "undefined: one label")
    assert [estimated(None, None, ""), number(None), percent(None), interval(0.5, None)] == [ABSENT] * 4


def test_figures_have_the_digits_that_were_asked_for() -> None:
    assert (number(0.0), number(6.333, 2), number(-1.5)) == ("0.000", "6.33", "-1.500")
    assert interval(1, 2.346, 2) == "1.00 to 2.35"
    assert (percent(0.125), percent(1, 0), percent(0.0512, 2, signed=True)) == ("12.5%", "100%", "+5.12%")


def test_a_model_without_a_name_is_the_default_one() -> None:
    assert (model_name("m"), model_name("")) == ("m", "(default)")
