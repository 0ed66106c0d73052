"""The turns of tenants in calls of the run store."""

from __future__ import annotations

import asyncio
import threading

from dramaturg.service.auth.caller import on_behalf_of
from dramaturg.service.threads import TenantThreads
from gateway.runs.store_calls import ServiceCaller


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
