"""Calls of the run store: the turns of tenants, and repeated writes."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.service.auth.caller import on_behalf_of
from dramaturg.service.threads import TenantThreads, ThreadPool
from gateway.runs import store_calls
from gateway.runs.store import open_store
from gateway.runs.store_calls import RetryingCaller, ServiceCaller
from tests.support.runs import create, lost_acknowledgements


async def test_short_calls_of_one_tenant_leave_threads_to_others() -> None:
    begun, end = threading.Semaphore(0), threading.Event()

    def block() -> None:
        begun.release()
        end.wait(30)

    heavy = TenantThreads()
    caller = ServiceCaller(heavy)
    with on_behalf_of("a"):
        calls = [asyncio.create_task(caller.call(block)) for _ in range(20)]
    for _ in range(4):
        assert await asyncio.to_thread(begun.acquire, timeout=30)
    with on_behalf_of("b"):
        assert await asyncio.wait_for(caller.call(lambda: "at once"), 30) == "at once"
    assert not begun.acquire(blocking=False)
    end.set()
    await asyncio.gather(*calls)
    caller.close()
    heavy.close()


async def test_a_write_of_unknown_outcome_is_repeated_and_takes_effect_once(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_calls, "FIRST_WAIT_SECONDS", 0.01)
    store = open_store(store_url, retry_seconds=0)
    create(store, tenant="a")
    threads = ThreadPool(1)
    with lost_acknowledgements():
        await RetryingCaller(threads)(store.attempts.add_usage, "run", "a", Usage(prompt_token_count=15))
    run = store.runs.get("run")
    assert run is not None
    assert run.counts.usage.prompt_token_count == 15
    assert store.spending.today("a").tokens == 15
    threads.close()
    store.close()
