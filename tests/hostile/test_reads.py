"""A viewer reads many large pages at once, or asks for them and reads none: memory is bounded."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.testing import until
from tests.hostile.test_noisy_tenant import LARGE_LINE, LARGE_SAMPLES, NOISY, QUIET, gateway, run_of
from tests.support.attacks import silent_calls
from tests.support.auth import channel_of
from tests.support.fleet import report
from tests.support.processes import ServiceProcess

READS = 100
SECONDS = 120.0
MOST_MB = 256
"""The growth during the reads: the pages of a tenant, and what builds them."""
MOST_KEPT_MB = 64
_LIST = "/dramaturg.api.evaluation.v1.RunService/ListSamples"


class Memory:
    """The growth of the memory of a process."""

    def __init__(self, process: ServiceProcess) -> None:
        self._process = process
        self._before = process.memory_mb()
        self.peak_mb = 0.0

    @property
    def growth_mb(self) -> float:
        growth = self._process.memory_mb() - self._before
        self.peak_mb = max(self.peak_mb, growth)
        return growth

    async def follow(self, ends: asyncio.Future[Any]) -> None:
        """Notes the peak until the end of something."""
        while not ends.done():
            assert self.growth_mb < MOST_MB
            await asyncio.sleep(0.01)


@pytest.mark.timeout(300)
async def test_the_memory_of_pages_is_bounded_and_goes_back(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as process,
        channel_of(process.target, tmp_path, NOISY) as noisy,
        channel_of(process.target, tmp_path, QUIET) as quiet,
    ):
        run_id = await run_of(noisy, LARGE_SAMPLES, LARGE_LINE)
        other = await run_of(quiet, 1)
        stub: Any = RunServiceStub(noisy)
        request = pb.ListSamplesRequest(run_id=run_id, page_size=1000)
        assert (await stub.ListSamples(request, timeout=SECONDS)).next_page_token
        memory, ends = Memory(process), Counter[str]()
        for _ in range(2):
            calls = [stub.ListSamples(request, timeout=SECONDS) for _ in range(READS)]
            ended = asyncio.gather(*(call.code() for call in calls))
            await memory.follow(ended)
            ends.update(code.name for code in ended.result())
            del calls, ended
            await until(lambda: memory.growth_mb < MOST_KEPT_MB, SECONDS)
        read_mb = memory.growth_mb
        assert ends == {"OK": 2 * READS}
        async with silent_calls(process.target, NOISY.token, _LIST, request.SerializeToString(), READS):
            page: Any = RunServiceStub(quiet)
            for _ in range(50):
                await page.ListSamples(pb.ListSamplesRequest(run_id=other), timeout=SECONDS)
                assert memory.growth_mb < MOST_MB
        # The slots of callers that have gone are free.
        await stub.ListSamples(request, timeout=SECONDS)
        await until(lambda: memory.growth_mb < MOST_KEPT_MB, SECONDS)
        report(peak_mb=memory.peak_mb, kept_mb=[read_mb, memory.growth_mb])
