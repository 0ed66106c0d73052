"""How figures and counts are put."""

from __future__ import annotations

from dramaturg.cli.cells import counted, figure, p_value
from dramaturg.cli.tables import Noted


def test_one_thing_is_no_things() -> None:
    assert [counted(count, "row") for count in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]


def test_no_p_value_is_zero() -> None:
    assert [p_value(p) for p in (1.0, 0.0123, 0.0001, 0.00002, 0.0)] == [
        "1.0000",
        "0.0123",
        "0.0001",
        "<0.0001",
        "<0.0001",
    ]


def test_what_is_undefined_is_no_zero_and_says_why() -> None:
    assert figure(0.5, (0.25, 0.75), "") == "0.500 [0.250, 0.750]"
    assert figure(0.5, None, "") == "0.500"
    assert figure(None, None, "one label") == Noted("-", "undefined: one label")
    assert figure(None, None, "") == "-"
