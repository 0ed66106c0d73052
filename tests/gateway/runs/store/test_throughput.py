from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.runs.store import throughput

SECOND = 1_000_000


def test_the_rate_is_that_of_the_last_seconds() -> None:
    text = throughput.start(0, 0)
    for second in range(1, 101):  # 10 a second, then 1 a second
        text = throughput.add(text, second * SECOND, min(second, 50) * 10 + max(0, second - 50))
    assert throughput.rate(text, 100 * SECOND, 20) == pytest.approx(1.0)
    assert throughput.rate(text, 100 * SECOND, 80) == pytest.approx((500 - 200 + 50) / 80)


def test_a_run_that_gets_nothing_done_loses_its_rate() -> None:
    text = throughput.add(throughput.start(0, 0), 10 * SECOND, 100)
    assert throughput.rate(text, 10 * SECOND, 60) == pytest.approx(10)
    assert throughput.rate(text, 50 * SECOND, 60) == pytest.approx(2)
    assert throughput.rate(text, 100 * SECOND, 60) is None


def test_without_marks_there_is_no_rate() -> None:
    assert throughput.rate("[]", 0, 60) is None
    assert throughput.rate(throughput.start(0, 5), SECOND, 60) is None


@given(st.lists(st.tuples(st.integers(0, 5 * SECOND), st.integers(0, 100)), max_size=300))
def test_marks_stay_few_and_in_order(steps: list[tuple[int, int]]) -> None:
    text, now, done = throughput.start(0, 0), 0, 0
    for wait, more in steps:
        now, done = now + wait, done + more
        text = throughput.add(text, now, done)
    marks = throughput.decode(text)
    assert len(marks) <= 64
    assert list(marks) == sorted(marks)
    assert not steps or marks[-1] == (now, done)
