"""What fails a run, what its budget is, and how its samples are divided."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import RunBudget, RunLimits, RunPolicy
from gateway.runs.engine import policy
from gateway.runs.engine.spending import Spending
from gateway.runs.engine.window import BATCHES_PER_GATEWAY, LARGEST_SIZE, batch_size, share_of, window_size
from gateway.runs.records import Counts


def test_defaults() -> None:
    assert policy.concurrent_samples(RunLimits()) == 16
    assert policy.sample_attempts(RunPolicy()) == 3
    assert policy.sample_seconds(RunPolicy()) == 600
    short = RunPolicy()
    short.sample_timeout.FromSeconds(7)
    assert policy.sample_seconds(short) == 7


@pytest.mark.parametrize(
    ("allowed", "failed", "fails"),
    [
        (RunPolicy(), 100, False),
        (RunPolicy(max_failed_count=0), 0, False),
        (RunPolicy(max_failed_count=0), 1, True),
        (RunPolicy(max_failed_count=5), 5, False),
        (RunPolicy(max_failed_count=5), 6, True),
        (RunPolicy(max_failed_fraction=0.05), 5, False),
        (RunPolicy(max_failed_fraction=0.05), 6, True),
        (RunPolicy(max_failed_fraction=1), 100, False),
    ],
)
def test_failed_samples(allowed: RunPolicy, failed: int, fails: bool) -> None:
    assert bool(policy.too_many_failed(allowed, Counts(samples=100, failed=failed))) is fails


def test_abstentions_that_were_to_be_expected_do_not_count() -> None:
    counts = Counts(judgements=10, abstentions_by_reason={"NOT_SUPPORTED": 8, "TIMED_OUT": 1})
    assert not policy.too_many_abstained(RunPolicy(max_abstained_fraction=0.1), counts)
    assert policy.too_many_abstained(RunPolicy(max_abstained_fraction=0.05), counts)
    assert not policy.too_many_abstained(RunPolicy(), counts)
    assert not policy.too_many_abstained(RunPolicy(max_abstained_fraction=0), Counts())


def test_every_limit_of_a_budget_is_told() -> None:
    usage = Usage(prompt_token_count=60, completion_token_count=40, provider_call_count=7, cost_usd=1.5)
    assert policy.budget_reached(RunBudget(), usage) == ""
    assert policy.budget_reached(RunBudget(max_cost_usd=1.51, max_token_count=101), usage) == ""
    assert "1.50 USD" in policy.budget_reached(RunBudget(max_cost_usd=1.5), usage)
    assert "100 tokens" in policy.budget_reached(RunBudget(max_token_count=100), usage)
    assert "7 provider calls" in policy.budget_reached(RunBudget(max_provider_call_count=7), usage)


@given(st.integers(1, 1024), st.integers(1, 64))
def test_shares_add_up_to_the_limit_or_are_one_each(slots: int, holders: int) -> None:
    shares = [share_of(rank, holders, slots) for rank in range(holders)]
    assert sum(shares) == max(slots, holders)
    assert max(shares) - min(shares) <= 1


@given(st.integers(1, 1024), st.integers(1, 64), st.none() | st.floats(0.001, 10_000))
def test_the_batches_that_are_out_fill_the_slots_and_no_more_hold_them(
    slots: int, gateways: int, rate: float | None
) -> None:
    size = batch_size(rate, slots, gateways)
    window, share = window_size(slots, gateways), math.ceil(slots / gateways)
    assert 1 <= size <= max(LARGEST_SIZE, share)
    # What one gateway works on fills its slots.
    assert BATCHES_PER_GATEWAY * size >= share
    # Every gateway that holds a batch has a slot, without more of them than the limit.
    assert min(gateways, slots) <= window
    assert slots >= gateways or window == slots


@given(st.lists(st.sampled_from(["add", "write", "look"]), max_size=40))
def test_nothing_that_was_spent_is_left_out(steps: list[str]) -> None:
    spending, spent, written, kept = Spending(Usage()), 0, 0, 0
    for step in steps:
        if step == "add":
            spending.add(Usage(provider_call_count=1))
            spent += 1
        elif step == "write" and written < spent:
            kept += 1
            written += 1
            spending.written(1)
        else:
            with spending.looking() as look:
                look.known = Usage(provider_call_count=kept)
            assert spending.total.provider_call_count == spent
        assert spending.total.provider_call_count >= spent
