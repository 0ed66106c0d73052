from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from gateway.quotas.gate import TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_minutes_worth_at_once_and_then_one_by_one() -> None:
    clock = Clock()
    bucket = TokenBucket(6, clock)
    assert [bucket.take() for _ in range(7)] == [0, 0, 0, 0, 0, 0, 10.0]
    clock.now += 9.9
    assert math.isclose(bucket.take(), 0.1)
    clock.now += 0.11
    assert bucket.take() == 0
    clock.now += 3600
    assert [bucket.take() > 0 for _ in range(7)] == [False] * 6 + [True]


@given(
    a_minute=st.integers(1, 500),
    pauses=st.lists(st.floats(0, 30, allow_nan=False), max_size=200),
)
def test_never_more_than_a_minutes_worth_beyond_the_rate(a_minute: int, pauses: list[float]) -> None:
    clock = Clock()
    bucket, taken = TokenBucket(a_minute, clock), 0
    for pause in pauses:
        clock.now += pause
        wait = bucket.take()
        taken += wait == 0
        assert 0 <= wait <= 60 / a_minute + 1e-6
    assert taken <= a_minute + (clock.now - 1000) * a_minute / 60 + 1e-6


@given(a_minute=st.integers(1, 500))
def test_after_the_wait_there_is_one(a_minute: int) -> None:
    clock = Clock()
    bucket = TokenBucket(a_minute, clock)
    for _ in range(a_minute):
        assert bucket.take() == 0
    clock.now += bucket.take() + 1e-6
    assert bucket.take() == 0


def test_a_batch_takes_each_of_its_items() -> None:
    clock = Clock()
    bucket = TokenBucket(10, clock)
    assert bucket.take(4) == 0
    assert math.isclose(bucket.take(8), 12.0)
    clock.now += 24
    assert bucket.take(25) == 0, "more than a minute's, once a minute's are there"
    assert math.isclose(bucket.take(), 96.0)
