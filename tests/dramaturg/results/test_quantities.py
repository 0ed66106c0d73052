"""Amounts as text, costs, tokens and times; consumption as numbers."""

from __future__ import annotations

import pytest

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.results.quantities import consumption, duration, usage_summary


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        (Usage(), ""),
        (Usage(prompt_token_count=1000, completion_token_count=200), ", 1,200 tokens"),
        (Usage(prompt_token_count=1, cost_usd=0.01), ", 1 tokens, $0.0100"),
        (Usage(cost_usd=0.01, unpriced_call_count=1), ", at least $0.0100"),
        (Usage(cost_usd=0.0, unpriced_call_count=1), ""),
    ],
)
def test_a_cost_that_is_not_known_whole_is_a_bound(usage: Usage, text: str) -> None:
    assert consumption(usage) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (61, "1 min 01 s"), (7500, "2 h 05 min")]
)
def test_a_time_is_as_people_say_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_an_unknown_cost_is_no_number() -> None:
    assert usage_summary(Usage())["cost_usd"] is None
    assert usage_summary(Usage(cost_usd=0.0))["cost_usd"] == 0.0
