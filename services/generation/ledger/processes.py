"""The processes that use a ledger, and whether they are alive.

A process holds a lease and renews it. For processes of the same machine the operating system is
authoritative: a process is dead as soon as its process number is free or reused. A live process whose lease
expired (for example a suspended one) regains it with the next renewal. Leases affect only counts.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LEASE_SECONDS = 30.0
"""The duration of a lease."""
RENEWAL_SECONDS = 10.0
"""The interval between renewals of a lease."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that uses or used a ledger."""

    id: str
    machine: str
    """The boot id and the PID namespace of ``pid``. Empty: unknown."""
    pid: int
    started: str
    """The start time, which distinguishes processes with the same number."""

    @classmethod
    def this(cls) -> Process:
        """The current process, under a new id."""
        return cls(uuid.uuid4().hex, _machine(), os.getpid(), _started(os.getpid()))

    def is_dead(self, lease_left: float) -> bool:
        """Whether the process is dead, as seen from this machine.

        Args:
            lease_left: Seconds until its lease ends; negative afterwards.
        """
        if self.machine and self.machine == _machine():
            return _started(self.pid) != self.started
        return lease_left <= 0


def living(processes: Iterable[tuple[Process, float]]) -> frozenset[str]:
    """Returns the ids of live processes. Each process comes with the seconds left of its lease."""
    return frozenset(process.id for process, lease_left in processes if not process.is_dead(lease_left))


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux: leases decide
        return ""


def _started(pid: int) -> str:
    """The start time in ticks since boot (proc(5), field 22). Empty: no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]  # a zombie has ended and is not reaped yet
