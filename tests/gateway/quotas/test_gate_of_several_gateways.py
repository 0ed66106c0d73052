"""Gateways that share a store on PostgreSQL exceed a quota by the documented bound at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import pytest

from dramaturg.api.common.v1.provenance_pb2 import Provenance, Usage
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeResponse
from dramaturg.service.auth.caller import on_behalf_of
from dramaturg.service.context import Context
from dramaturg.service.errors import ServiceError
from dramaturg.service.threads import ThreadPool
from dramaturg.testing import until
from gateway.quotas import spending
from gateway.quotas.gate import Quotas
from gateway.quotas.settings import Quota, QuotaSettings
from gateway.runs.engine.parts import ClusterMembership
from gateway.runs.store import RunStore, open_store

EVALUATE = "/dramaturg.api.evaluation.v1.EvaluationService/EvaluateScripts"
TENANT = "team-a"
COST = 100
"""The tokens of a call."""
LIMIT = 10 * COST
ANSWER = JudgeResponse(assessment=Assessment(provenance=Provenance(usage=Usage(completion_token_count=COST))))


@pytest.fixture
def stores(postgres_url: str) -> list[RunStore]:
    return [open_store(postgres_url) for _ in range(3)]


@pytest.fixture
async def gateways(stores: list[RunStore]) -> AsyncIterator[Sequence[Quotas]]:
    """Two gateways that know the cost of a call: each has made one."""
    async with AsyncExitStack() as stack:
        made = []
        for store in stores[:2]:
            stack.callback(store.close)
            quotas = Quotas(QuotaSettings(default=Quota(tokens_per_day=LIMIT)))
            await stack.enter_async_context(quotas.spending.persisted(store))
            made.append(quotas)
        for quotas in made:
            assert await call(quotas)
            await written(quotas)
        yield made


@pytest.fixture
def observer(stores: list[RunStore]) -> RunStore:
    return stores[2]


async def call(
    quotas: Quotas, end: asyncio.Event | None = None, decided: asyncio.Queue[bool] | None = None
) -> bool:
    """One evaluation, which ends with an event; returns whether it was admitted."""
    with on_behalf_of(TENANT):
        try:
            async with quotas.passing(EVALUATE, 1, cast("Context", object())) as answered:
                if decided is not None:
                    decided.put_nowait(True)
                if end is not None:
                    await end.wait()
                assert answered is not None
                answered(ANSWER)
        except ServiceError as error:
            if error.reason_name != "ERROR_REASON_QUOTA_EXHAUSTED":
                raise
            if decided is not None:
                decided.put_nowait(False)
            return False
    return True


async def written(quotas: Quotas) -> None:
    await until(lambda: not quotas.spending._writers)


async def admitted(quotas: Quotas, count: int, all_decided: asyncio.Barrier) -> int:
    """How many of so many calls at once are admitted. None ends before all of all gateways are decided."""
    end, decided = asyncio.Event(), asyncio.Queue[bool]()
    calls = [asyncio.create_task(call(quotas, end, decided)) for _ in range(count)]
    async with asyncio.timeout(30):
        for _ in range(count):
            await decided.get()
        await all_decided.wait()
    end.set()
    passed = sum(await asyncio.gather(*calls))
    await written(quotas)
    return passed


async def test_calls_at_once_at_two_gateways_exceed_the_quota_by_what_was_left_at_most(
    gateways: Sequence[Quotas], observer: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = LIMIT - observer.spending.today(TENANT).tokens
    assert left == 8 * COST
    monkeypatch.setattr(spending, "_CACHE_SECONDS", 0.0)
    all_decided = asyncio.Barrier(len(gateways))
    passed = await asyncio.gather(*(admitted(quotas, 30, all_decided) for quotas in gateways))
    assert all(1 <= one <= left // COST for one in passed), passed
    spent = observer.spending.today(TENANT).tokens
    assert spent == 2 * COST + sum(passed) * COST
    assert spent <= LIMIT + (len(gateways) - 1) * left
    assert not any([await call(quotas) for quotas in gateways])


async def test_the_last_call_passes_once_at_each_gateway_at_most(
    gateways: Sequence[Quotas], observer: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spending, "_CACHE_SECONDS", 0.0)
    for _ in range(7):
        assert await call(gateways[0])
        await written(gateways[0])
    assert observer.spending.today(TENANT).tokens == LIMIT - COST
    all_decided = asyncio.Barrier(2 * len(gateways))
    passed = await asyncio.gather(
        *(admitted(quotas, 10, all_decided) for quotas in gateways for _ in range(2))
    )
    assert 1 <= sum(passed) <= len(gateways)
    assert observer.spending.today(TENANT).tokens <= LIMIT + (len(gateways) - 1) * COST
    assert not any([await call(quotas) for quotas in gateways])


async def test_what_another_gateway_spent_counts_after_the_cache_has_expired(
    gateways: Sequence[Quotas], observer: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = gateways
    assert await admitted(first, 8, asyncio.Barrier(1)) == 8
    assert observer.spending.today(TENANT).tokens == LIMIT
    assert await call(second), "known as of a read of up to 5 seconds ago"
    monkeypatch.setattr(spending, "_CACHE_SECONDS", 0.0)
    assert not await call(second)


@pytest.mark.parametrize("count", [2, 8])
async def test_a_quota_of_requests_holds_for_any_number_of_gateways(postgres_url: str, count: int) -> None:
    """They find each other by their leases in the store, also one that starts later and one that ends."""
    limits = QuotaSettings(default=Quota(requests_per_minute=16, max_concurrent_calls=8))
    async with AsyncExitStack() as stack:
        gateways = [Quotas(limits) for _ in range(count)]
        for quotas in gateways[1:]:
            await stack.enter_async_context(joined(quotas, postgres_url))
        async with joined(gateways[0], postgres_url):
            await until(lambda: all(quotas.gateways == count for quotas in gateways))
            begun, end = time.monotonic(), asyncio.Event()
            at_once = [asyncio.create_task(call(quotas, end)) for quotas in gateways for _ in range(9)]
            await until(lambda: sum(task.done() for task in at_once) == 9 * count - 8)
            end.set()
            assert sum(await asyncio.gather(*at_once)) == 8
            passed = [sum([await call(quotas) for _ in range(17)]) for quotas in gateways]
            refilled = (time.monotonic() - begun) * 16 / 60
            assert 8 <= sum(passed) <= 8 + refilled
            assert max(passed) <= (8 + refilled) / count + 1
        await until(lambda: all(quotas.gateways == count - 1 for quotas in gateways[1:]))


@asynccontextmanager
async def joined(quotas: Quotas, url: str) -> AsyncIterator[None]:
    """A gateway of the store while the block lasts, with a lease and nothing else."""
    store, threads = open_store(url), ThreadPool(1)

    def divide(gateways: int) -> None:
        quotas.gateways = gateways

    membership = ClusterMembership(
        f"{id(quotas)}@1", store.executors, threads, single=False, lease_seconds=20, on_count=divide
    )
    await membership.renew()
    renewing = asyncio.create_task(membership.keep_lease(0.2))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
        await membership.leave()
        threads.close()
        store.close()
