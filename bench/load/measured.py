"""What a setup costs: time on the clock, processor time and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """How much is asked."""

    judgements: int
    concurrency: int
    """The most model calls at once."""
    latency: float
    """Of a model call, in seconds."""

    @property
    def ideal(self) -> float:
        """The least seconds that the load can take."""
        return self.judgements / self.concurrency * self.latency


@dataclass(frozen=True)
class Measured:
    """One setup, measured once."""

    wall_over_ideal: float
    cpu_ms_per_judgement: float
    """Of all the setup's own processes."""
    caller_cpu_ms_per_judgement: float
    """Of this program, which calls the setup. 0 for the bare client, which is this program."""
    peak_memory_mib: float
    """Of the setup's own processes together, each at its own peak."""


async def measured(load: Load, work: Awaitable[None], pids: Sequence[int]) -> Measured:
    """Measures work that makes the judgements of a load.

    Args:
        load: The load.
        work: Makes them.
        pids: The setup's own processes, one of which may be this one.
    """
    before = sum(map(processor_seconds, pids))
    begun, own = time.perf_counter(), time.process_time()
    await work
    seconds, own = time.perf_counter() - begun, time.process_time() - own
    cpu = sum(map(processor_seconds, pids)) - before
    caller = 0.0 if os.getpid() in pids else own
    return Measured(
        seconds / load.ideal,
        cpu / load.judgements * 1000,
        caller / load.judgements * 1000,
        sum(map(peak_memory, pids)),
    )


def processor_seconds(pid: int) -> float:
    """User and system time of a process and all its threads (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_memory(pid: int) -> float:
    """The most memory that a process had at once, in MiB (proc(5), VmHWM)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024
