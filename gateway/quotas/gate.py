"""Holds tenants to their quotas.

Items, the judgements and model calls that a request asks for, count against quotas and against
``server.max_concurrent_calls`` before the request starts any work.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunRequest
from dramaturg.judge.provenance import total_usage
from dramaturg.service.auth.caller import current
from dramaturg.service.auth.settings import EVALUATE, RULES, SERVE
from dramaturg.service.context import Context
from dramaturg.service.contract import Answered, Contract
from dramaturg.service.errors import ServiceError
from gateway.evaluations.kinds import KINDS
from gateway.quotas.settings import Quota, QuotaSettings
from gateway.quotas.spending import CallUsage, DailySpending, seconds_until_tomorrow
from gateway.quotas.turns import CallTurns, RecentCalls
from gateway.runs.records import Spending

_MINUTE = 60.0


class TokenBucket:
    """Allows a minute's calls at once, and then refills evenly.

    Args:
        calls_per_minute: The limit.
        clock: The time in seconds.

    Attributes:
        limit: The limit, which may change.
    """

    def __init__(self, calls_per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = calls_per_minute
        self._clock = clock
        self._left = float(calls_per_minute)
        self._updated = clock()

    def take(self, count: int = 1) -> float:
        """Takes calls. Returns 0, or the seconds until they are available if they are not.

        More calls than a minute's are taken when a minute's are available; the wait for the next ones is
        longer accordingly.
        """
        now = self._clock()
        self._left = min(self.limit, self._left + (now - self._updated) * self.limit / _MINUTE)
        self._updated = now
        wanted = min(count, self.limit)
        if self._left >= wanted:
            self._left -= count
            return 0.0
        return (wanted - self._left) * _MINUTE / self.limit


_RUNS = "/dramaturg.api.evaluation.v1.RunService"
_STARTS_RUN = frozenset({f"{_RUNS}/CreateRun", f"{_RUNS}/RerunSamples", f"{_RUNS}/ExtendRun"})
_RESUMES_RUN = f"{_RUNS}/ResumeRun"
_SUMMARIZE = "/dramaturg.api.evaluation.v1.EvaluationService/Summarize"
"""Its response states the usage of the samples, which was paid for before."""

MAX_TURN_SECONDS = 0.01
"""The longest time from the start of a call of a tenant to that of its next one, beside calls of others."""
MAX_LARGE_TURN_SECONDS = 0.5
"""The same of calls with large responses."""
_RETRY_CALL_SECONDS = 1.0
_RETRY_RUN_SECONDS = 60.0
_LEAST_COST = Spending(1, 1e-6)
"""The least expected cost of an item."""
_UNKNOWN_SHARE = 20
"""Before a first item's cost is known, this part of the day's quota is expected."""
_WEIGHT = 0.1
"""The weight of the last call in the average."""


class Quotas:
    """The gate of a gateway's contracts.

    Each call counts against the rate and the concurrency of its tenant, of which each of several gateways
    admits an equal part. When the tokens or the money of the
    day are spent, calls that cost are refused: evaluations, and the start of runs. Calls and runs in progress
    continue; runs have budgets of their own.

    Each item of a batch counts as a call. A call in progress reserves for each item the average cost of the
    tenant's items so far, so that concurrent calls do not all pass with the last of the quota: a call passes
    only if it fits beside the reserved ones, or if nothing is reserved and the quota is not used up.

    Attributes:
        spending: What tenants spent today.
        calls: The tenants that made the last calls.
        gateways: The live gateways that divide the rate and the concurrency, this one included.
    """

    def __init__(self, settings: QuotaSettings) -> None:
        self.spending = DailySpending()
        self.calls = RecentCalls()
        self.gateways = 1
        self._settings = settings
        self._buckets: dict[str, TokenBucket] = {}
        self._in_progress: Counter[str] = Counter()
        self._reserved: defaultdict[str, Spending] = defaultdict(Spending)
        self._expected: dict[str, Spending] = {}
        """The moving average of the cost of an item, by tenant."""
        self._answers: dict[Context, list[Usage]] = {}
        """The usage of the answers of judges, by call in progress."""
        self._turns = CallTurns(self.calls.has_others, MAX_TURN_SECONDS)
        self._large_turns: dict[str, CallTurns] = {}
        self._starting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def passing(
        self, method: str, items: int, context: Context
    ) -> AbstractAsyncContextManager[Answered | None]:
        """Admits a call of the current caller's tenant.

        Raises:
            ServiceError: When entered: RESOURCE_EXHAUSTED, ERROR_REASON_QUOTA_EXHAUSTED; or UNAVAILABLE,
                ERROR_REASON_STORE_UNAVAILABLE: the spending is unknown.
        """
        tenant = current().tenant
        self.calls.note(tenant)
        quota = self._settings.of(tenant)
        return nullcontext() if quota.limits_nothing else self._held(tenant, quota, method, items, context)

    def set_large(self, methods: Iterable[str]) -> None:
        """Sets the full names of the methods with large responses."""
        turns = partial(CallTurns, self.calls.has_others, MAX_LARGE_TURN_SECONDS)
        self._large_turns = {method: turns() for method in methods}

    def answers(self, context: Context) -> list[Usage]:
        """The list that receives the usage of the answers of judges in a call.

        What its responses do not report of it counts against the quota when the call ends.

        Args:
            context: The servicer's context of the call. Of a call that no quota limits, the list is not read.
        """
        return self._answers.get(context, [])

    def dataset_bytes(self, tenant: str) -> int | None:
        """The most bytes of a tenant's uploaded datasets together. None: any number."""
        return self._settings.of(tenant).dataset_bytes

    async def start(self, method: str, tenant: str) -> None:
        """Waits for the turn of a call (``CallTurns``). Large responses have turns by method."""
        await self._large_turns.get(method, self._turns).take(tenant)

    @asynccontextmanager
    async def _held(
        self, tenant: str, quota: Quota, method: str, items: int, context: Context
    ) -> AsyncIterator[Answered | None]:
        self._count(tenant, quota, items)
        self._in_progress[tenant] += items
        usage = CallUsage()
        try:
            # Starts of runs one at a time, so that each sees the runs of those before it.
            async with (
                self._start_lock(tenant, quota, method),
                self._reservation(tenant, quota, method, items),
            ):
                await self._check_runs(tenant, quota, method)
                if not _may_cost(method):
                    yield None
                    return
                answers = self._answers[context] = []
                try:
                    yield partial(self._answered, tenant, usage)
                finally:
                    del self._answers[context]
                    # A call that is cancelled or fails reports less than its answers cost.
                    if (rest := usage.rest(total_usage(answers))) != Spending():
                        self.spending.add(tenant, rest)
                if usage.spent != Spending():
                    self._expect(tenant, usage.spent, items)
        finally:
            self._in_progress[tenant] -= items
            if not self._in_progress[tenant]:
                del self._in_progress[tenant]

    def _count(self, tenant: str, quota: Quota, items: int) -> None:
        limit, in_progress = quota.max_concurrent_calls, self._in_progress[tenant]
        # A request of more items than this gateway's part is admitted alone.
        if limit is not None and (
            items > limit or (in_progress and in_progress + items > max(1, limit // self.gateways))
        ):
            what = (
                "calls in progress" if items == 1 else f"calls in progress, and the request has {items} items"
            )
            # A request that exceeds the limit alone is never admitted.
            retry_after = _RETRY_CALL_SECONDS if items <= limit else None
            raise quota_exhausted("max_concurrent_calls", limit, what + self._divided(), retry_after)
        if quota.requests_per_minute is None:
            return
        part = quota.requests_per_minute / self.gateways
        bucket = self._buckets.setdefault(tenant, TokenBucket(part))
        bucket.limit = part
        if wait := bucket.take(items):
            what = f"calls this minute{self._divided()}"
            raise quota_exhausted("requests_per_minute", quota.requests_per_minute, what, wait)

    def _divided(self) -> str:
        return "" if self.gateways == 1 else f", divided equally by {self.gateways} gateways"

    def _start_lock(self, tenant: str, quota: Quota, method: str) -> AbstractAsyncContextManager[object]:
        if quota.max_active_runs is None or method not in _STARTS_RUN:
            return nullcontext()
        return self._starting[tenant]

    @asynccontextmanager
    async def _reservation(self, tenant: str, quota: Quota, method: str, items: int) -> AsyncIterator[None]:
        """Reserves the cost of a call within an ``async with`` block, if the day's quota has it left."""
        if quota.tokens_per_day is None and quota.usd_per_day is None:
            yield
            return
        starts_run = method in _STARTS_RUN or method == _RESUMES_RUN
        if not starts_run and not _may_cost(method):
            yield
            return
        spent = await self.spending.today(tenant, fresh=starts_run)
        cost = _LEAST_COST if starts_run else self._expected_cost(tenant, quota, items)
        # Nothing is awaited between the check and the reservation.
        _check_spent(quota, spent, self._reserved[tenant], cost)
        self._reserved[tenant] += cost
        try:
            yield
        finally:
            self._reserved[tenant] -= cost
            if self._in_progress[tenant] == items:
                del self._reserved[tenant]  # no residue of rounding

    async def _check_runs(self, tenant: str, quota: Quota, method: str) -> None:
        limit = quota.max_active_runs
        if limit is None or method not in _STARTS_RUN:
            return
        if await self.spending.active_runs(tenant) >= limit:
            raise quota_exhausted("max_active_runs", limit, "active runs", _RETRY_RUN_SECONDS)

    def _answered(self, tenant: str, usage: CallUsage, message: Any) -> None:
        """Adds the usage that a response reports."""
        added = usage.add(message)
        if added != Spending():
            self.spending.add(tenant, added)

    def _expected_cost(self, tenant: str, quota: Quota, items: int) -> Spending:
        cost = self._expected.get(tenant)
        if cost is None:
            tokens = (quota.tokens_per_day or 0) // _UNKNOWN_SHARE
            cost = Spending(
                max(_LEAST_COST.tokens, tokens),
                max(_LEAST_COST.usd, (quota.usd_per_day or 0.0) / _UNKNOWN_SHARE),
            )
        return Spending(cost.tokens * items, cost.usd * items)

    def _expect(self, tenant: str, spent: Spending, items: int) -> None:
        cost = Spending(math.ceil(spent.tokens / items), spent.usd / items)
        self._expected[tenant] = _average(self._expected.get(tenant, cost), cost)


def _may_cost(method: str) -> bool:
    """Whether a call asks models, so that the usage of its responses is its own; runs count theirs."""
    return RULES.get(method) in {EVALUATE, SERVE} and method != _SUMMARIZE


def _average(average: Spending, cost: Spending) -> Spending:
    tokens = average.tokens + (cost.tokens - average.tokens) * _WEIGHT
    usd = average.usd + (cost.usd - average.usd) * _WEIGHT
    return Spending(max(_LEAST_COST.tokens, math.ceil(tokens)), max(_LEAST_COST.usd, usd))


def _check_spent(quota: Quota, spent: Spending, reserved: Spending, cost: Spending) -> None:
    total = spent + reserved + cost
    for name, limit, used, all_used, what in (
        ("tokens_per_day", quota.tokens_per_day, spent.tokens, total.tokens, "tokens today"),
        ("usd_per_day", quota.usd_per_day, spent.usd, total.usd, "US dollars today"),
    ):
        if limit is None:
            continue
        if used >= limit:
            raise quota_exhausted(name, limit, what, seconds_until_tomorrow())
        if reserved != Spending() and all_used > limit:
            raise quota_exhausted(name, limit, f"{what}, with calls in progress", _RETRY_CALL_SECONDS)


def quota_exhausted(quota: str, limit: float, what: str, retry_after: float | None) -> ServiceError:
    """The error of a call that exceeds a quota.

    Args:
        quota: The member of ``Quota``.
        limit: Its value.
        what: The unit, for the message.
        retry_after: The retry delay in seconds. None: a retry does not help.
    """
    return ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        error_reason_pb2.ERROR_REASON_QUOTA_EXHAUSTED,
        f"the tenant's quota is used up: {_plain(limit)} {what}",
        metadata={"quota": quota, "limit": _plain(limit)},
        retry_after=retry_after,
    )


def _plain(number: float) -> str:
    """A number without an exponent, for programs that read it."""
    return f"{Decimal(repr(number)):f}".removesuffix(".0")


ITEM_FIELDS: Mapping[str, Sequence[str]] = {
    **{kind.request_type.DESCRIPTOR.name: kind.items for kind in KINDS if kind.items},
    "JudgeRequest": ("candidates",),
    "GenerateBatchRequest": ("requests",),
    "ScoreTextsRequest": ("texts",),
}
"""The fields whose elements are items, by the name of the request. Any other request is one item."""


def count_items(request: Any) -> int:
    """The number of items in a request, at least 1."""
    if isinstance(request, EstimateRunRequest):
        return max(1, request.pilot_sample_count)
    return max(1, sum(len(getattr(request, name)) for name in ITEM_FIELDS.get(request.DESCRIPTOR.name, ())))


def with_items(contract: Contract) -> Contract:
    """The contract with ``count_items`` as the weight of its batches."""
    weights = {
        method.name: count_items
        for method in contract.descriptor.methods
        if method.input_type.name in {*ITEM_FIELDS, EstimateRunRequest.DESCRIPTOR.name}
    }
    return replace(contract, weights=weights)
