"""When a run may go on: what may fail, what may abstain and what it may cost."""

from __future__ import annotations

from collections.abc import Mapping

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import RunBudget, RunLimits, RunPolicy
from gateway.runs.records import Counts

DEFAULT_CONCURRENT_SAMPLES = 16
"""Samples at once where the limits name none (RunLimits.max_concurrent_samples)."""
DEFAULT_ATTEMPTS = 3
"""Tries of a sample where the policy names none (RunPolicy.sample_attempt_count)."""
DEFAULT_SAMPLE_SECONDS = 600.0
"""The most time for one try where the policy names none (RunPolicy.sample_timeout)."""

_EXPECTED = frozenset({"NOT_SUPPORTED", "NOT_APPLICABLE"})
"""Abstentions that say nothing of how the run went, named as in RunProgress.abstentions_by_reason."""


def concurrent_samples(limits: RunLimits) -> int:
    """How many samples are evaluated at once, by all gateways together."""
    return limits.max_concurrent_samples or DEFAULT_CONCURRENT_SAMPLES


def sample_attempts(policy: RunPolicy) -> int:
    """How often a sample is tried."""
    return policy.sample_attempt_count or DEFAULT_ATTEMPTS


def sample_seconds(policy: RunPolicy) -> float:
    """The most seconds for one try."""
    if not policy.HasField("sample_timeout"):
        return DEFAULT_SAMPLE_SECONDS
    return policy.sample_timeout.ToTimedelta().total_seconds() or DEFAULT_SAMPLE_SECONDS


def too_many_failed(policy: RunPolicy, counts: Counts) -> str:
    """Why so many failed samples fail the run; empty where they do not.

    Args:
        policy: What may fail.
        counts: How far the run is. All of its samples are known, so that a share that is passed stays so.
    """
    failed, samples = counts.failed, counts.samples
    if policy.HasField("max_failed_count") and failed > policy.max_failed_count:
        return f"{failed} samples failed; the policy allows {policy.max_failed_count}"
    if policy.HasField("max_failed_fraction") and failed > policy.max_failed_fraction * samples:
        allowed = f"{policy.max_failed_fraction:.4g}"
        return f"{failed} of {samples} samples failed; the policy allows {allowed} of all"
    return ""


def too_many_abstained(policy: RunPolicy, counts: Counts) -> str:
    """Why so many abstentions fail a run whose samples are all done; empty where they do not."""
    if not policy.HasField("max_abstained_fraction"):
        return ""
    unexpected = _unexpected(counts.abstentions_by_reason)
    if unexpected <= policy.max_abstained_fraction * counts.judgements:
        return ""
    return (
        f"{unexpected} of {counts.judgements} judgements abstained; the policy allows "
        f"{policy.max_abstained_fraction:.4g} of all"
    )


def budget_reached(budget: RunBudget, usage: Usage) -> str:
    """Which limit of the budget is reached, in words; empty where none is."""
    if budget.max_cost_usd and usage.cost_usd >= budget.max_cost_usd:
        return f"the budget of {budget.max_cost_usd:.2f} USD is reached"
    tokens = usage.prompt_token_count + usage.completion_token_count
    if budget.max_token_count and tokens >= budget.max_token_count:
        return f"the budget of {budget.max_token_count} tokens is reached"
    if budget.max_provider_call_count and usage.provider_call_count >= budget.max_provider_call_count:
        return f"the budget of {budget.max_provider_call_count} provider calls is reached"
    return ""


def _unexpected(by_reason: Mapping[str, int]) -> int:
    return sum(count for reason, count in by_reason.items() if reason not in _EXPECTED)
