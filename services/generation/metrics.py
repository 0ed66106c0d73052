"""Metrics of the service: calls to providers, their cost, and stored completions."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.service.auth.caller import current
from dramaturg.service.telemetry.instruments import Bounded, Counter, Gauge, Histogram
from services.generation.calls import Answer, Call, Purchase
from services.generation.limits.limiter import CallLimiter

ATTEMPTS = Counter(
    "dramaturg_provider_calls_total",
    "Calls to providers by outcome: answered, cut (at a deadline or with their caller), or how they failed.",
    ("provider", "outcome"),
)
_CONVENTION = ("provider", "gen_ai_operation_name", "gen_ai_provider_name")
ATTEMPT_SECONDS = Histogram(
    "gen_ai_client_operation_duration_seconds", "Duration of calls to providers.", _CONVENTION
)
TOKEN_USAGE = Histogram(
    "gen_ai_client_token_usage",
    "Tokens of an answered call by type: input and output.",
    (*_CONVENTION, "gen_ai_request_model", "gen_ai_token_type"),
    bounds=[4.0**power for power in range(14)],
)
RETRIES = Counter("dramaturg_provider_retries_total", "Retried calls, by cause.", ("provider", "cause"))
LIMIT = Gauge(
    "dramaturg_provider_concurrency_limit", "Current limit of concurrent calls to a provider.", ("provider",)
)
IN_USE = Gauge("dramaturg_provider_concurrency_in_use", "Calls to a provider in progress.", ("provider",))
WAITING = Gauge(
    "dramaturg_provider_concurrency_waiting", "Calls that wait for a slot at a provider.", ("provider",)
)
COMPLETIONS = Counter(
    "dramaturg_completions_total",
    "Completions by status: ok, unparsable, refused, truncated or empty.",
    ("provider", "status"),
)
TOKENS = Counter(
    "dramaturg_tokens_total",
    "Tokens by type: prompt (cached_prompt included) and completion.",
    ("provider", "model", "type"),
)
COST = Counter(
    "dramaturg_cost_usd_total", "Cost of calls with a known price, in US dollars.", ("provider", "model")
)
UNPRICED = Counter("dramaturg_unpriced_calls_total", "Calls with an unknown price.", ("provider", "model"))
TENANT_CALLS = Counter("dramaturg_tenant_calls_total", "Answered calls to providers by tenant.", ("tenant",))
TENANT_TOKENS = Counter(
    "dramaturg_tenant_tokens_total", "Tokens by tenant and type: prompt and completion.", ("tenant", "type")
)
TENANT_COST = Counter(
    "dramaturg_tenant_cost_usd_total",
    "Cost of a tenant's calls with a known price, in US dollars.",
    ("tenant",),
)
CACHE_HITS = Counter(
    "dramaturg_completion_cache_hits_total",
    "Calls answered without a provider call: from the ledger, a recording or a call in progress.",
    ("provider",),
)
LEDGER_SECONDS = Histogram(
    "dramaturg_ledger_write_duration_seconds",
    "Duration of the ledger's writes: put (a completion, with its wait), commit (a group's transaction).",
    ("operation",),
)
LEDGER_FAILURES = Counter(
    "dramaturg_ledger_failures_total",
    "Failed operations of the ledger: put, commit, read, or record (nothing is bought meanwhile).",
    ("operation",),
    shown=(("put",), ("commit",), ("read",), ("record",)),
)
LEDGER_UNWRITTEN = Gauge(
    "dramaturg_ledger_unwritten_completions",
    "Completions whose commit is not acknowledged yet; their callers wait.",
)

# Callers name models as they like. Those counted were answered by a provider, and still they are not trusted.
_model = Bounded(100)
_tenant = Bounded(100)


def count_call(labels: Sequence[str], seconds: float, call: Call, answer: Answer | None) -> None:
    """Counts a call to a provider under the names of OpenTelemetry's conventions.

    Args:
        labels: The provider, the operation, and the provider's name in the conventions.
        seconds: Its duration.
        call: The call.
        answer: Its answer. None: there is none.
    """
    ATTEMPT_SECONDS.observe(seconds, *labels)
    if answer is not None and answer.counts is not None:
        model = _model(call.model)
        TOKEN_USAGE.observe(answer.counts.prompt, *labels, model, "input")
        TOKEN_USAGE.observe(answer.counts.completion, *labels, model, "output")


def count_purchase(purchase: Purchase) -> None:
    """Counts an answer, charged or cached, for the tenant of the current call."""
    provider, model, counts = purchase.provider, _model(purchase.requested_model), purchase.answer.counts
    if purchase.cached:
        CACHE_HITS.add(provider)
        return
    tenant = _tenant(current().tenant)
    TENANT_CALLS.add(tenant)
    if counts is not None:
        TOKENS.add(provider, model, "prompt", amount=counts.prompt)
        TOKENS.add(provider, model, "completion", amount=counts.completion)
        if counts.cached_prompt:
            TOKENS.add(provider, model, "cached_prompt", amount=counts.cached_prompt)
        TENANT_TOKENS.add(tenant, "prompt", amount=counts.prompt)
        TENANT_TOKENS.add(tenant, "completion", amount=counts.completion)
    if purchase.cost is None:
        UNPRICED.add(provider, model)
    else:
        COST.add(provider, model, amount=purchase.cost)
        TENANT_COST.add(tenant, amount=purchase.cost)


def watch_limiter(provider: str, limiter: CallLimiter) -> None:
    """Shows a provider's limit and how much of it is used."""
    LIMIT.watch(lambda: limiter.limit, provider)
    IN_USE.watch(lambda: limiter.in_flight, provider)
    WAITING.watch(lambda: limiter.waiting, provider)
