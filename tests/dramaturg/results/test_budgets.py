"""When a budget is reached, or cannot be kept."""

from __future__ import annotations

import pytest

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import RunBudget
from dramaturg.results.budgets import budget_reached


def test_every_limit_of_a_budget_is_told() -> None:
    usage = Usage(prompt_token_count=60, completion_token_count=40, provider_call_count=7, cost_usd=1.5)
    assert budget_reached(RunBudget(), usage) == ""
    assert budget_reached(RunBudget(max_cost_usd=1.51, max_token_count=101), usage) == ""
    assert "1.50 USD" in budget_reached(RunBudget(max_cost_usd=1.5), usage)
    assert "100 tokens" in budget_reached(RunBudget(max_token_count=100), usage)
    assert "7 provider calls" in budget_reached(RunBudget(max_provider_call_count=7), usage)


@pytest.mark.parametrize(
    ("budget", "usage", "said"),
    [
        (RunBudget(max_token_count=100), Usage(provider_call_count=2, unmetered_call_count=2), ""),
        (
            RunBudget(max_token_count=100),
            Usage(provider_call_count=20, unmetered_call_count=3),
            "the budget of 100 tokens cannot be kept: the provider stated no token counts of 3 of 20 calls",
        ),
        (
            RunBudget(max_token_count=100),
            Usage(provider_call_count=10, unmetered_call_count=1, prompt_token_count=90),
            "the budget of 100 tokens is reached",
        ),
        (
            RunBudget(max_cost_usd=1),
            Usage(provider_call_count=4, unpriced_call_count=4),
            "the budget of 1.00 USD cannot be kept: the price of 4 of 4 calls is unknown",
        ),
        (RunBudget(max_cost_usd=1), Usage(provider_call_count=100, unpriced_call_count=9, cost_usd=0.9), ""),
        (
            RunBudget(max_cost_usd=1),
            Usage(provider_call_count=100, unpriced_call_count=10, cost_usd=0.9),
            "the budget of 1.00 USD is reached",
        ),
        (
            RunBudget(max_token_count=100, estimate_unreported_usage=True),
            Usage(
                prompt_token_count=20,
                provider_call_count=9,
                unmetered_call_count=8,
                estimated_call_count=8,
                estimated_token_count=80,
            ),
            "the budget of 100 tokens is reached (80 of them estimated)",
        ),
        (
            RunBudget(max_token_count=100, estimate_unreported_usage=True),
            Usage(provider_call_count=9, unmetered_call_count=8, estimated_call_count=4),
            "the budget of 100 tokens cannot be kept: the provider stated no token counts of 4 of 9 calls",
        ),
        (
            RunBudget(max_cost_usd=1, estimate_unreported_usage=True),
            Usage(
                provider_call_count=9,
                unpriced_call_count=8,
                estimated_cost_call_count=8,
                cost_usd=0.5,
                estimated_cost_usd=0.5,
            ),
            "the budget of 1.00 USD is reached (0.5 USD of it estimated)",
        ),
        (
            RunBudget(max_cost_usd=1, estimate_unreported_usage=True),
            Usage(provider_call_count=9, unpriced_call_count=8, estimated_call_count=8),
            "the budget of 1.00 USD cannot be kept: the price of 8 of 9 calls is unknown",
        ),
        (RunBudget(), Usage(provider_call_count=4, unpriced_call_count=4, unmetered_call_count=4), ""),
    ],
)
def test_calls_of_unknown_size_or_price_are_estimated_while_they_are_few(
    budget: RunBudget, usage: Usage, said: str
) -> None:
    assert budget_reached(budget, usage) == said
