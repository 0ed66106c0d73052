"""Defaults of a run's policy, and the failures and abstentions that it allows."""

from __future__ import annotations

import pytest

from dramaturg.api.evaluation.v1.run_pb2 import RunLimits, RunPolicy
from gateway.runs.engine import policy
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
