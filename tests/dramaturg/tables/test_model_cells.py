from __future__ import annotations

import pytest

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.tables.model import ends_of, estimate_cell, p_sentence, p_value, percent, points, words


def test_an_estimate_has_its_interval_its_coverage_and_why_it_is_undefined() -> None:
    whole = estimate_cell(Estimate(value=0.5, lower=0.25, upper=0.75, count=3, total=4), show=percent)
    assert (whole.text, whole.value, whole.bounds) == ("50 %", 0.5, (0.25, 0.75))
    assert (whole.ends, whole.judged, whole.total) == ("25 to 75 %", 3, 4)
    alone = estimate_cell(Estimate(value=0.5))
    assert (alone.bounds, alone.ends, alone.judged) == (None, "", None)
    absent = estimate_cell(Estimate(undefined="every item was abstained from"))
    assert (absent.text, absent.value) == ("–", None)
    assert absent.note == "undefined: every item was abstained from"


def test_both_ends_of_an_interval_share_a_unit() -> None:
    assert ends_of(0.25, 0.9875, lambda value: percent(value, 1)) == "25.0 to 98.8 %"
    assert ends_of(1, 2, str) == "1 to 2"


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
