"""A gateway that loses its lease ends its process, and the first live gateway leads."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dramaturg.database.errors import StoreError
from dramaturg.service.threads import ThreadPool
from gateway.runs.engine.leases import LOST_LEASE_STATUS, ClusterMembership
from gateway.runs.store import RunStore


class UnreachableStore:
    """A store whose leases cannot be renewed."""

    def renew_lease(self, executor_id: str, seconds: float) -> None:
        raise StoreError("nobody answers")

    def live_executors(self) -> list[str]:
        return ["b@1", "a@1"]


def membership(store: Any, threads: ThreadPool, **fields: Any) -> ClusterMembership:
    return ClusterMembership("b@1", store, threads, **{"single": False, "lease_seconds": 1.0, **fields})


async def test_a_process_that_lost_its_lease_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    def end(status: int) -> None:
        ended.append(status)
        raise ChildProcessError

    monkeypatch.setattr("os._exit", end)
    threads = ThreadPool(1)
    holding = membership(UnreachableStore(), threads)
    holding._held_until = time.monotonic() + 0.2
    with pytest.raises(ExceptionGroup):
        await holding.keep_lease(0.05)
    threads.close()
    assert set(ended) == {LOST_LEASE_STATUS}


async def test_the_first_by_id_leads_and_a_single_gateway_reads_no_leases() -> None:
    threads = ThreadPool(1)
    store: RunStore = UnreachableStore()  # type: ignore[assignment] # only what is called
    assert await membership(store, threads).live() == ["a@1", "b@1"]
    assert not await membership(store, threads).is_leader()
    assert await membership(store, threads, single=True).live() == ("b@1",)
    assert await membership(store, threads, single=True).is_leader()
    threads.close()
