"""A gateway that loses its lease ends its process, and the first live gateway leads."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dramaturg.database.errors import StoreError
from dramaturg.service.threads import ThreadPool
from gateway.runs.engine.executors import LOST_LEASE_STATUS, ClusterMembership


class UnreachableLeases:
    """Leases that cannot be renewed."""

    def renew(self, executor_id: str, seconds: float) -> None:
        raise StoreError("nobody answers")

    def live(self) -> list[str]:
        return ["b@1", "a@1"]


def membership(leases: Any, threads: ThreadPool, **fields: Any) -> ClusterMembership:
    return ClusterMembership("b@1", leases, threads, **{"single": False, "lease_seconds": 1.0, **fields})


async def test_a_process_that_lost_its_lease_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    def end(status: int) -> None:
        ended.append(status)
        raise ChildProcessError

    monkeypatch.setattr("os._exit", end)
    threads = ThreadPool(1)
    holding = membership(UnreachableLeases(), threads)
    holding._held_until = time.monotonic() + 0.2
    with pytest.raises(ExceptionGroup):
        await holding.keep_lease(0.05)
    threads.close()
    assert set(ended) == {LOST_LEASE_STATUS}


async def test_the_first_by_id_leads_and_a_single_gateway_reads_no_leases() -> None:
    threads = ThreadPool(1)
    leases = UnreachableLeases()
    assert await membership(leases, threads).live() == ["a@1", "b@1"]
    assert not await membership(leases, threads).is_leader()
    assert await membership(leases, threads, single=True).live() == ("b@1",)
    assert await membership(leases, threads, single=True).is_leader()
    threads.close()
