from __future__ import annotations

import asyncio
import random
import threading
import zlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_RUNNING, RUN_STATE_SUCCEEDED
from dramaturg.service.threads import TenantThreads
from dramaturg.testing import until
from gateway.runs.service.report_cache import Build, ReportCache
from tests.gateway.runs.service.conftest import Service
from tests.gateway.runs.service.test_results import fill


class Builder:
    """Builds reports of a size, and counts them."""

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.builds = 0
        self.most = self.building = 0
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self) -> AsyncGenerator[bytes]:
        self.builds += 1
        self.building += 1
        self.most = max(self.most, self.building)
        try:
            await self.open.wait()
            yield zlib.compress(random.Random(self.builds).randbytes(self.size))  # incompressible
            yield zlib.compress(b"end")
        finally:
            self.building -= 1


async def read(cache: ReportCache, key: tuple[str, int, int], build: Build, tenant: str = "a") -> bytes:
    return b"".join([piece async for piece in cache.pieces(tenant, key, build)])


async def test_a_report_is_built_once_for_a_version() -> None:
    cache, build = ReportCache(TenantThreads()), Builder()
    first = await read(cache, ("run", 1, 0), build)
    assert first.endswith(b"end")
    assert await read(cache, ("run", 1, 0), build) == first
    assert build.builds == 1
    await read(cache, ("run", 1, 7), build)
    await read(cache, ("run", 2, 0), build)
    assert build.builds == 3


async def test_calls_at_once_wait_for_one_build() -> None:
    cache, build = ReportCache(TenantThreads()), Builder()
    build.open.clear()
    calls = [asyncio.create_task(read(cache, ("run", 1, 0), build)) for _ in range(50)]
    await until(lambda: build.building == 1)
    for call in calls[:49]:
        call.cancel()
    build.open.set()
    assert (await calls[49]).endswith(b"end")
    assert build.builds == 1


async def test_a_build_that_no_call_waits_for_ends() -> None:
    cache, build = ReportCache(TenantThreads()), Builder()
    build.open.clear()
    call = asyncio.create_task(read(cache, ("run", 1, 0), build))
    await until(lambda: build.building == 1)
    call.cancel()
    await until(lambda: build.building == 0)
    build.open.set()
    assert (await read(cache, ("run", 1, 0), build)).endswith(b"end")


async def test_many_readers_of_a_report_do_not_block_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    inflating: list[int] = []
    monkeypatch.setattr(zlib, "decompress", counting(zlib.decompress, inflating))
    cache, build = ReportCache(TenantThreads()), Builder(1 << 20)
    await asyncio.gather(*(read(cache, ("run", 1, 0), build) for _ in range(20)))
    assert len(inflating) == 40
    assert threading.get_ident() not in inflating


async def test_an_error_is_not_kept() -> None:
    async def fail() -> AsyncGenerator[bytes]:
        yield b"begun"
        raise KeyError("of the store")

    cache = ReportCache(TenantThreads())
    with pytest.raises(KeyError):
        await read(cache, ("run", 1, 0), fail)
    assert (await read(cache, ("run", 1, 0), Builder())).endswith(b"end")


async def test_memory_is_bounded() -> None:
    cache, build = ReportCache(TenantThreads(), max_bytes=10_000), Builder(3000)
    for number in range(20):
        await read(cache, (f"run-{number}", 1, 0), build)
    assert cache._bytes <= 10_000
    assert 1 <= len(cache._kept) <= 4
    large = Builder(30_000)
    for _ in range(2):
        await read(cache, ("large", 1, 0), large)
    assert large.builds == 2


async def test_builds_are_bounded_and_shared_by_tenants() -> None:
    cache, build = ReportCache(TenantThreads(), max_builds=2), Builder()
    build.open.clear()
    many = [asyncio.create_task(read(cache, (f"{n}", 1, 0), build)) for n in range(50)]
    await until(lambda: build.building == 2)
    other = asyncio.create_task(read(cache, ("other", 1, 0), build, "b"))
    await asyncio.sleep(0)
    build.open.set()
    await other
    assert sum(call.done() for call in many) <= 4
    await asyncio.gather(*many)
    assert build.most == 2


def counting(function: Callable[..., Any], calls: list[int]) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(threading.get_ident())
        return function(*args, **kwargs)

    return counted


async def test_a_gateway_reads_the_samples_of_a_report_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(service)
    reads: list[int] = []
    monkeypatch.setattr(service.store.samples, "page", counting(service.store.samples.page, reads))

    async def report() -> bytes:
        request = pb.GetReportRequest(run_id="run", sample_limit=7)
        return b"".join([piece.chunk async for piece in service.stub.GetReport(request)])

    pages: Sequence[bytes] = await asyncio.gather(*(report() for _ in range(30)))
    first = len(reads)
    assert len(set(pages)) == 1
    assert await report() == pages[0]
    assert len(reads) == first
    service.store.runs.change_state("run", RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING])
    assert b"The run has not ended" in pages[0]
    assert b"The run has not ended" not in await report()
    assert len(reads) == 2 * first
