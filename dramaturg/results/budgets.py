"""When a budget is reached, or cannot be kept."""

from __future__ import annotations

from typing import NamedTuple

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import RunBudget

MAX_UNKNOWN_SHARE = 0.1
"""The share of calls of unknown cost or size above which a budget cannot be kept."""
MIN_UNKNOWN_CALLS = 3
"""The least number of such calls."""


class _Spent(NamedTuple):
    """An amount that was spent, as far as it is known."""

    known: float
    estimated: float
    """Part of ``known``."""
    unknown_calls: int
    """Calls of which the amount is neither known nor estimated."""
    calls: int

    @property
    def total(self) -> float:
        """The amount, with unknown calls estimated by the mean of the others."""
        if self.calls <= self.unknown_calls:
            return self.known
        return self.known * self.calls / (self.calls - self.unknown_calls)

    @property
    def is_unknown(self) -> bool:
        """Whether too many calls are unknown."""
        return self.unknown_calls >= MIN_UNKNOWN_CALLS and self.unknown_calls > MAX_UNKNOWN_SHARE * self.calls


def budget_reached(budget: RunBudget, usage: Usage) -> str:
    """The limit of the budget that is reached, or that cannot be kept. Empty: none.

    Calls without a price or without token counts are estimated by the mean of the others. With too many of
    them the budget cannot be kept. With ``estimate_unreported_usage`` their own estimates count.

    Args:
        budget: The limits.
        usage: What was consumed.
    """
    if budget.max_cost_usd:
        name, spent = f"the budget of {budget.max_cost_usd:.2f} USD", _cost(budget, usage)
        if spent.is_unknown:
            unknown = f"{spent.unknown_calls} of {spent.calls}"
            return f"{name} cannot be kept: the price of {unknown} calls is unknown"
        if spent.total >= budget.max_cost_usd:
            part = f" ({spent.estimated:.4g} USD of it estimated)" if spent.estimated else ""
            return f"{name} is reached{part}"
    if budget.max_token_count:
        name, spent = f"the budget of {budget.max_token_count} tokens", _tokens(budget, usage)
        if spent.is_unknown:
            return (
                f"{name} cannot be kept: the provider stated no token counts of {spent.unknown_calls} of "
                f"{spent.calls} calls"
            )
        if spent.total >= budget.max_token_count:
            part = f" ({spent.estimated:.0f} of them estimated)" if spent.estimated else ""
            return f"{name} is reached{part}"
    if budget.max_provider_call_count and usage.provider_call_count >= budget.max_provider_call_count:
        return f"the budget of {budget.max_provider_call_count} provider calls is reached"
    return ""


def _cost(budget: RunBudget, usage: Usage) -> _Spent:
    calls, unknown = usage.provider_call_count, usage.unpriced_call_count
    if not budget.estimate_unreported_usage:
        return _Spent(usage.cost_usd, 0, unknown, calls)
    estimated = usage.estimated_cost_usd
    unknown = max(0, unknown - usage.estimated_cost_call_count)
    return _Spent(usage.cost_usd + estimated, estimated, unknown, calls)


def _tokens(budget: RunBudget, usage: Usage) -> _Spent:
    calls, unknown = usage.provider_call_count, usage.unmetered_call_count
    known = usage.prompt_token_count + usage.completion_token_count
    if not budget.estimate_unreported_usage:
        return _Spent(known, 0, unknown, calls)
    estimated = usage.estimated_token_count
    return _Spent(known + estimated, estimated, max(0, unknown - usage.estimated_call_count), calls)
