"""A tenant that does its worst within its quota: calls of another one succeed, and memory is bounded.

The endurance tests print latencies alone, beside processes that compute, and beside the attack, with ratios.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, Run, RunSpec
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from gateway.runs.records import ACTIVE
from tests.hostile.noise import ATTACKS
from tests.support.auth import Holder, channel_of, holder, write_tokens
from tests.support.bombs import GOOD_LINE
from tests.support.command_line import ROOT
from tests.support.engines import judges_of
from tests.support.fleet import report
from tests.support.gateway import agents
from tests.support.processes import ServiceProcess

NOISY, QUIET = holder("team-a", "operator"), holder("team-b", "operator")
QUOTA = {"max_concurrent_calls": 400, "requests_per_minute": 6000, "max_active_runs": 3}
SAMPLES = 1000
ROUNDS = 6
"""How often latencies are measured alone and beside the attack, in turn: the speed of a shared machine
changes from second to second."""
FEW_ROUNDS = 2
"""Of the test that runs with each change: it asserts no latency, and measures none alone."""
COUNT = 25
"""The calls of each method in one measurement. The 99th percentile of 150 calls is their second longest; that
of all methods together has three times as many."""
COUNT_OF_SINGLE = 100
"""The same beside a single attack, whose ratios are of each method: the sixth longest of 600 calls."""
LOW = ("nice", "-n", "10")
"""Starts the attacking process: its callers would have machines of their own."""
LOWEST = ("chrt", "--idle", "0")
"""The same where latencies are measured. Linux lets a process of any niceness end its turn, of milliseconds,
before another one that wakes."""
CHECK_SECONDS, IDLE_SHARE, MOST_IDLE_SECONDS = 0.3, 0.2, 60.0
SHARES = (0.5, 0.9, 0.99)
"""The shares of calls whose latency is printed."""
FEWEST_ATTACKS = 5
"""The kinds of attacks of which a call has ended."""
MOST_GROWTH_MB = 400
MOST_WORKERS_MB = 1200
"""Of two processes that compute reports and two that read datasets, with their code."""
MOST_KEPT_MB = 64
"""What a gateway holds more than before once an attack has ended."""


@dataclass
class Child:
    """A process of a tenant."""

    process: asyncio.subprocess.Process

    async def ask(self) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        return json.loads(await self.process.stdout.readline())

    async def end(self) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.close()
        output, _ = await self.process.communicate()
        return json.loads(output or b"{}")


async def child(*arguments: str, priority: Sequence[str] = ()) -> Child:
    """Starts a module of the tests."""
    return Child(
        await asyncio.create_subprocess_exec(
            *(*priority, sys.executable, "-m", *arguments),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
    )


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[ServiceProcess]:
    """A gateway as a process, with runs and quotas."""
    async with judges_of(agents()) as judges:
        entries = [judge.model_dump(mode="json", exclude_defaults=True) for judge in judges]
        process = ServiceProcess(
            "gateway",
            folder,
            {
                "DRAMATURG_AUTH_TOKENS_FILE": str(write_tokens(folder, NOISY, QUIET)),
                "DRAMATURG_QUOTAS_DEFAULT": json.dumps(QUOTA),
                "DRAMATURG_GATEWAY_JUDGES": json.dumps(entries),
                "DRAMATURG_RUNS_ENABLED": "true",
                "DRAMATURG_GATEWAY_WORKER_PROCESSES": "2",
                "DRAMATURG_RUNS_URL": f"sqlite:///{folder}/runs.sqlite3",
                "DRAMATURG_SERVER_LOG_LEVEL": "ERROR",
                "DRAMATURG_SERVER_DRAIN_GRACE_SECONDS": "0.5",
                "MALLOC_ARENA_MAX": "2",  # as the chart sets it
            },
        )
        await process.start()
        try:
            yield process
        finally:
            await process.stop()


async def run_of(channel: grpc.aio.Channel, rows: int, line: bytes = GOOD_LINE) -> str:
    """A run that has ended."""
    stub: Any = RunServiceStub(channel)
    spec = RunSpec(dataset=Dataset(content=line * rows))
    spec.scripts.SetInParent()
    run = (await stub.CreateRun(pb.CreateRunRequest(spec=spec), timeout=60)).run
    async with asyncio.timeout(120):
        while run.state in ACTIVE:
            await asyncio.sleep(0.2)
            run = (await stub.GetRun(pb.GetRunRequest(run_id=run.id), timeout=60)).run
    return str(run.id)


def token_of(folder: Path, who: Holder) -> str:
    path = folder / f"{who.tenant}.token"
    path.write_text(f"{who.token}\n")
    return str(path)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


@asynccontextmanager
async def burners() -> AsyncIterator[None]:
    """Processes that compute, as those of the attack do, and call nothing."""
    processes = [
        await asyncio.create_subprocess_exec(*LOWEST, sys.executable, "-c", "while True: pass")
        for _ in range(2)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            await process.wait()


def add(found: dict[str, list[float]], values: Mapping[str, Sequence[float]]) -> None:
    for name, some in values.items():
        found[name] += some


async def quieten(channel: grpc.aio.Channel, pid: int) -> None:
    """Cancels the runs of a tenant, and waits until the gateway takes a small share of a processor."""
    stub: Any = RunServiceStub(channel)
    request = pb.ListRunsRequest(states=ACTIVE)
    runs: Sequence[Run] | None = None
    async with asyncio.timeout(MOST_IDLE_SECONDS):
        while runs is None:
            with suppress(grpc.aio.AioRpcError):  # the attack used the tenant's quota up
                runs = (await stub.ListRuns(request, timeout=60)).runs
            await asyncio.sleep(CHECK_SECONDS)
    for run in runs:
        with suppress(grpc.aio.AioRpcError):  # it has ended
            await stub.CancelRun(pb.CancelRunRequest(run_id=run.id), timeout=60)
    async with asyncio.timeout(MOST_IDLE_SECONDS):
        before = cpu_seconds(pid)
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            taken, before = cpu_seconds(pid) - before, cpu_seconds(pid)
            if taken < IDLE_SHARE * CHECK_SECONDS:
                return


@contextmanager
def own_processors(pid: int) -> Iterator[None]:
    """Gives a gateway the first half of the processors, and the other half to its judges and callers.

    They have machines of their own where a platform is deployed, and take the gateway's time on one machine.
    """
    processors = sorted(os.sched_getaffinity(0))
    half = max(1, len(processors) // 2)
    _give(str(pid), processors[:half])
    _give("self", processors[half:] or processors)
    try:
        yield
    finally:
        _give("self", processors)


def _give(process: str, processors: Sequence[int]) -> None:
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(int(thread.name), processors)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def workers_mb(pid: int) -> float:
    """The resident memory of the processes of a gateway."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended
            for worker in (task / "children").read_text().split():
                found += int(Path(f"/proc/{worker}/statm").read_text().split()[1])
    return found * os.sysconf("SC_PAGE_SIZE") / 2**20


def report_latencies(
    alone: dict[str, list[float]], busy: dict[str, list[float]], beside: dict[str, list[float]]
) -> None:
    figures = {
        name: {
            share: [round(percentile(values[name], share) * 1000, 1) for values in (alone, busy, beside)]
            for share in SHARES
        }
        for name in alone
    }
    medians = {name: percentile(values, 0.5) for name, values in alone.items()}
    for values in (alone, busy, beside):
        # A method's latency is in units of its median alone, so that those of all methods are comparable.
        values["all"] = [latency / medians[name] for name in figures for latency in values[name]]
    ratios = {
        name: [
            round(percentile(beside[name], 0.99) / percentile(one[name], 0.99), 1) for one in (alone, busy)
        ]
        for name in alone
    }
    report(alone_busy_beside_ms=figures, p99_ratios_to_alone_and_busy=ratios)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "rounds",
    [pytest.param(FEW_ROUNDS, marks=pytest.mark.slow), pytest.param(ROUNDS, marks=pytest.mark.endurance)],
)
async def test_the_worst_of_one_tenant_is_not_felt_by_another(tmp_path: Path, rounds: int) -> None:
    async with (
        gateway(tmp_path) as process,
        channel_of(process.target, tmp_path, NOISY) as noisy,
        channel_of(process.target, tmp_path, QUIET) as quiet,
    ):
        large, small = await asyncio.gather(run_of(noisy, SAMPLES), run_of(quiet, 1))
        caller = await child(
            "tests.hostile.caller", process.target, token_of(tmp_path, QUIET), small, str(COUNT)
        )
        await caller.ask()
        before, workers = process.memory_mb(), 0.0
        token = token_of(tmp_path, NOISY)
        noise = await child(
            "tests.hostile.noise", process.target, token, large, priority=LOWEST if rounds == ROUNDS else LOW
        )
        await noise.ask()
        found: list[dict[str, list[float]]] = [defaultdict(list) for _ in range(3)]
        for _ in range(rounds):
            if rounds == ROUNDS:
                noise.process.send_signal(signal.SIGSTOP)
                await quieten(noisy, process.pid)
                add(found[0], await caller.ask())
                async with burners():
                    add(found[1], await caller.ask())
                noise.process.send_signal(signal.SIGCONT)
            add(found[2], await caller.ask())
            workers = max(workers, workers_mb(process.pid))
        growth = process.memory_mb() - before
        ends, _ = await asyncio.gather(noise.end(), caller.end())
    report(growth_mb=round(growth), workers_mb=round(workers), attacks=ends)
    assert len({name.split()[0] for name in ends}) >= FEWEST_ATTACKS
    # A call that fails ends the caller; the time of a call is no condition of a test.
    assert [len(values) for values in found[2].values()] == [rounds * COUNT] * 3
    assert growth < MOST_GROWTH_MB
    assert workers < MOST_WORKERS_MB
    if rounds == ROUNDS:
        report_latencies(*found)


LARGE_LINE = GOOD_LINE.replace(b"1. Boil.", b"1. Boil. " + b"Wait. " * 3_000)
"""Of a sample of 18 kB."""
LARGE_SAMPLES = 500
"""Their page ends at the size of a page."""


@pytest.mark.endurance
@pytest.mark.timeout(900)
@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_single_attack_is_felt_by_another_or_keeps_memory(tmp_path: Path, attack: str) -> None:
    async with (
        AsyncExitStack() as stack,
        gateway(tmp_path) as process,
        channel_of(process.target, tmp_path, NOISY) as noisy,
        channel_of(process.target, tmp_path, QUIET) as quiet,
    ):
        stack.enter_context(own_processors(process.pid))
        large, small = await asyncio.gather(run_of(noisy, LARGE_SAMPLES, LARGE_LINE), run_of(quiet, 1))
        caller = await child(
            "tests.hostile.caller", process.target, token_of(tmp_path, QUIET), small, str(COUNT_OF_SINGLE)
        )
        await caller.ask()
        token = token_of(tmp_path, NOISY)
        before, peak = process.memory_mb(), 0.0
        noise = await child("tests.hostile.noise", process.target, token, large, attack, priority=LOWEST)
        await noise.ask()
        alone: dict[str, list[float]] = defaultdict(list)
        beside: dict[str, list[float]] = defaultdict(list)
        for _ in range(ROUNDS):
            noise.process.send_signal(signal.SIGSTOP)
            await quieten(noisy, process.pid)
            add(alone, await caller.ask())
            noise.process.send_signal(signal.SIGCONT)
            add(beside, await caller.ask())
            peak = max(peak, process.memory_mb())
        ends, _ = await asyncio.gather(noise.end(), caller.end())
        await quieten(noisy, process.pid)
        kept = process.memory_mb() - before
    p99 = {
        name: [round(percentile(values[name], 0.99) * 1000, 1) for values in (alone, beside)]
        for name in alone
    }
    ratios = {name: round(after / first, 1) for name, (first, after) in p99.items()}
    report(
        attack=attack, p99_alone_beside_ms=p99, p99_ratios=ratios, peak_mb=round(peak - before),
        kept_mb=round(kept), ends=ends,
    )  # fmt: skip
    assert [len(values) for values in beside.values()] == [ROUNDS * COUNT_OF_SINGLE] * 3
    assert kept < MOST_KEPT_MB
