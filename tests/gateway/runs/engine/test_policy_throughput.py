"""Batches fill the slots of gateways, and no more of them are in flight than can be worked on."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from gateway.runs.engine.policy import (
    BATCHES_PER_GATEWAY,
    MAX_BATCH_SIZE,
    batch_size,
    max_batches_in_flight,
    slots_of,
)


@given(st.integers(1, 1024), st.integers(1, 64))
def test_shares_add_up_to_the_limit_or_are_one_each(slots: int, holders: int) -> None:
    shares = [slots_of(rank, holders, slots) for rank in range(holders)]
    assert sum(shares) == max(slots, holders)
    assert max(shares) - min(shares) <= 1


@given(st.integers(1, 1024), st.integers(1, 64), st.none() | st.floats(0.001, 10_000))
def test_the_batches_that_are_out_fill_the_slots_and_no_more_hold_them(
    slots: int, gateways: int, rate: float | None
) -> None:
    size = batch_size(rate, slots, gateways)
    window, share = max_batches_in_flight(slots, gateways), math.ceil(slots / gateways)
    assert 1 <= size <= max(MAX_BATCH_SIZE, share)
    # What one gateway works on fills its slots.
    assert BATCHES_PER_GATEWAY * size >= share
    # Every gateway that holds a batch has a slot, without more of them than the limit.
    assert min(gateways, slots) <= window
    assert slots >= gateways or window == slots
