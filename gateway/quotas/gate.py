"""Holds every tenant to its quota."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.auth.caller import current
from dramaturg.service.auth.permissions import EVALUATE, RULES, SERVE
from dramaturg.service.errors import ServiceError
from dramaturg.service.gate import OPEN_GATE, Answered
from gateway.quotas.rate import Rate
from gateway.quotas.settings import Quota, QuotaSettings
from gateway.quotas.spending import Spending, seconds_until_tomorrow

_RUNS = "/dramaturg.api.evaluation.v1.RunService"
_BEGINS = frozenset({f"{_RUNS}/CreateRun", f"{_RUNS}/RerunRun", f"{_RUNS}/ExtendRun"})
_GOES_ON = f"{_RUNS}/ResumeRun"

_RETRY_CALL_SECONDS = 1.0
_RETRY_RUN_SECONDS = 60.0


class Quotas:
    """The gate of a gateway's contracts.

    Every call counts against the requests and the concurrent calls of its tenant. Where the tenant's tokens
    or money of the day are used up, nothing is begun that costs: no evaluation, and no run. What is under way
    goes on; runs have budgets of their own.

    Attributes:
        spending: Knows what tenants have spent.
    """

    def __init__(self, settings: QuotaSettings) -> None:
        self.spending = Spending()
        self._settings = settings
        self._rates: dict[str, Rate] = {}
        self._under_way: Counter[str] = Counter()
        self._beginning: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def passing(self, method: str) -> AbstractAsyncContextManager[Answered]:
        """Lets a call of the current caller's tenant pass.

        Raises:
            ServiceError: When entered: RESOURCE_EXHAUSTED, ERROR_REASON_QUOTA_EXHAUSTED.
        """
        tenant = current().tenant
        quota = self._settings.of(tenant)
        return OPEN_GATE.passing(method) if quota.limits_nothing else self._held(tenant, quota, method)

    @asynccontextmanager
    async def _held(self, tenant: str, quota: Quota, method: str) -> AsyncIterator[Answered]:
        """Holds a call to its tenant's quota."""
        self._take(tenant, quota)
        self._under_way[tenant] += 1
        try:
            # One at a time, so that each sees the runs of those before it.
            async with self._turn(tenant, quota, method):
                await self._check_spending(tenant, quota, method)
                await self._check_runs(tenant, quota, method)
                yield partial(self._answered, tenant)
        finally:
            self._under_way[tenant] -= 1
            if not self._under_way[tenant]:
                del self._under_way[tenant]

    def _take(self, tenant: str, quota: Quota) -> None:
        most = quota.max_concurrent_calls
        if most is not None and self._under_way[tenant] >= most:
            raise _exhausted("max_concurrent_calls", most, "calls under way", _RETRY_CALL_SECONDS)
        if quota.requests_per_minute is None:
            return
        rate = self._rates.get(tenant) or self._rates.setdefault(tenant, Rate(quota.requests_per_minute))
        if wait := rate.take():
            raise _exhausted("requests_per_minute", quota.requests_per_minute, "calls this minute", wait)

    def _turn(self, tenant: str, quota: Quota, method: str) -> AbstractAsyncContextManager[object]:
        if quota.max_active_runs is None or method not in _BEGINS:
            return nullcontext()
        return self._beginning[tenant]

    async def _check_spending(self, tenant: str, quota: Quota, method: str) -> None:
        if quota.tokens_per_day is None and quota.usd_per_day is None:
            return
        begins = method in _BEGINS or method == _GOES_ON
        if not begins and RULES.get(method) not in {EVALUATE, SERVE}:
            return
        spent = await self.spending.today(tenant, fresh=begins)
        if quota.tokens_per_day is not None and spent.tokens >= quota.tokens_per_day:
            raise _exhausted("tokens_per_day", quota.tokens_per_day, "tokens today", seconds_until_tomorrow())
        if quota.usd_per_day is not None and spent.usd >= quota.usd_per_day:
            raise _exhausted("usd_per_day", quota.usd_per_day, "US dollars today", seconds_until_tomorrow())

    async def _check_runs(self, tenant: str, quota: Quota, method: str) -> None:
        most = quota.max_active_runs
        if most is not None and method in _BEGINS and await self.spending.active_runs(tenant) >= most:
            raise _exhausted("max_active_runs", most, "runs that have not ended", _RETRY_RUN_SECONDS)

    def _answered(self, tenant: str, message: Any) -> None:
        """Takes the usage of an evaluation's result, or of an answer that a judge or author gave."""
        for part in (getattr(message, "result", None), getattr(message, "provenance", None)):
            if part is not None and hasattr(part, "usage"):
                self.spending.add(tenant, part.usage)


def _exhausted(quota: str, limit: float, what: str, retry_after: float) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        error_reason_pb2.ERROR_REASON_QUOTA_EXHAUSTED,
        f"the tenant's quota is used up: {limit:g} {what}",
        metadata={"quota": quota, "limit": f"{limit:g}"},
        retry_after=retry_after,
    )
