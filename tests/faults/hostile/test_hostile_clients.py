"""Attacks from a process of its own, while another tenant works.

Whatever is tried: probes hear SERVING, the other tenant's calls succeed, and the server's memory stays
bounded.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.testing import until
from tests.support.attacks import ATTACKS
from tests.support.auth import Holder, channel_of, holder, write_tokens
from tests.support.command_line import ROOT
from tests.support.fleet import report
from tests.support.grpc_servers import synthesize_request
from tests.support.processes import ServiceProcess

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(240)]

GROWTH_MB = {"stranger": 150, "tenant": 600}
"""The most by which any attack may raise the server's memory, by who attacks (docs/operate/security.md)."""
_PAUSE_SECONDS = 0.02
_PATIENCE_SECONDS = 60.0
_CALLS_AFTERWARDS = 20

GOOD, HOSTILE = holder("team-a", "evaluator"), holder("team-b", "evaluator")


@dataclass
class Watch:
    """What a well-behaved tenant, a probe and the kernel see."""

    calls: int = 0
    probes: int = 0
    wrong: list[str] = field(default_factory=list)
    peak_mb: float = 0.0


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[ServiceProcess]:
    """A server with two tenants, of which none has more than 1,000 calls at once."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < 5000:
        pytest.skip("a process may not have 5,000 open files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (5000 if most == resource.RLIM_INFINITY else most, most))
    environment = {
        "DRAMATURG_AUTH_TOKENS_FILE": str(write_tokens(tmp_path, GOOD, HOSTILE)),
        "DRAMATURG_QUOTAS_DEFAULT": '{"max_concurrent_calls": 1000}',
        "DRAMATURG_SERVER_LOG_LEVEL": "WARNING",
        "DRAMATURG_SERVER_DRAIN_GRACE_SECONDS": "1",
    }
    process = ServiceProcess("tests.support.hostile_target", tmp_path, environment)
    await process.start()
    yield process
    await process.stop()


@asynccontextmanager
async def watching(target: ServiceProcess, folder: Path) -> AsyncIterator[Watch]:
    """Calls, probes and measures all the while."""
    watch = Watch()

    async def work() -> None:
        while True:
            try:
                await synthesizer.Synthesize(synthesize_request(), timeout=_PATIENCE_SECONDS)
            except grpc.aio.AioRpcError as error:
                watch.wrong.append(f"call: {error.code().name} {error.details()}")
            watch.calls += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    async def probe() -> None:
        while True:
            try:
                answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=_PATIENCE_SECONDS)
                if answer.status != health_pb2.HealthCheckResponse.SERVING:
                    watch.wrong.append(f"probe: {answer.status}")
            except grpc.aio.AioRpcError as error:
                watch.wrong.append(f"probe: {error.code().name} {error.details()}")
            watch.probes += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    async def measure() -> None:
        while True:
            watch.peak_mb = max(watch.peak_mb, memory_mb(target.pid))
            await asyncio.sleep(0.005)

    async with (
        channel_of(target.target, folder, GOOD) as channel,
        grpc.aio.insecure_channel(target.target) as probing,
    ):
        synthesizer, health = SynthesizeServiceStub(channel), health_pb2_grpc.HealthStub(probing)
        tasks = [asyncio.create_task(task) for task in (work(), probe(), measure())]
        try:
            yield watch
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("who", [None, HOSTILE], ids=["stranger", "tenant"])
@pytest.mark.parametrize("attack", ATTACKS)
async def test_the_others_hear_nothing_of_it(
    target: ServiceProcess, tmp_path: Path, attack: str, who: Holder | None
) -> None:
    async with watching(target, tmp_path) as watch:
        await until(lambda: watch.calls > 5 and watch.probes > 5, _PATIENCE_SECONDS)
        before = watch.peak_mb
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.attacks", attack, target.target, who.token if who else ""),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        ended = watch.calls
        await until(lambda: watch.calls > ended + _CALLS_AFTERWARDS, _PATIENCE_SECONDS)
    ends = json.loads(output)
    report(attack=attack, stranger=who is None, ends=ends, calls=watch.calls, probes=watch.probes,
           before_mb=round(before), peak_mb=round(watch.peak_mb), wrong=watch.wrong[:3])  # fmt: skip
    assert watch.wrong == []
    assert watch.peak_mb - before < GROWTH_MB["tenant" if who else "stranger"]
    if who is None and attack in {"slow_streams", "flood"}:
        assert set(ends) == {"UNAUTHENTICATED"}
    refusals = {"large_messages": "RESOURCE_EXHAUSTED", "bombs": "UNIMPLEMENTED"}
    if attack in refusals:
        assert set(ends) <= {refusals[attack], "UNAUTHENTICATED"}


def memory_mb(pid: int) -> float:
    """The resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1e6
