"""Which processes use a ledger, and which of them are dead.

A process holds a lease and renews it. For processes of the same machine the operating system is
authoritative: there a process is dead as soon as its number is free or another's. A process that lost a lease
by mistake (a process that was stopped for a while) gets it back with the next renewal; nothing depends on it
but counts.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LEASE_SECONDS = 30.0
"""How long a process counts as living after it was last heard of."""
RENEWAL_SECONDS = 10.0
"""How often it renews its lease."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that uses, or used, a ledger."""

    id: str
    machine: str
    """The boot and the space of process numbers that ``pid`` belongs to. Empty: not known."""
    pid: int
    started: str
    """What tells it from another process that had the same number."""

    @classmethod
    def this(cls) -> Process:
        """The process that runs, under a new id."""
        return cls(uuid.uuid4().hex, _machine(), os.getpid(), _started(os.getpid()))

    def is_dead(self, lease_left: float) -> bool:
        """Whether it is dead as far as can be told here.

        Args:
            lease_left: Seconds until its lease ends, negative once it has.
        """
        if self.machine and self.machine == _machine():
            return _started(self.pid) != self.started
        return lease_left <= 0


def living(processes: Iterable[tuple[Process, float]]) -> frozenset[str]:
    """The ids of the processes that live, given each with the seconds left of its lease."""
    return frozenset(process.id for process, lease_left in processes if not process.is_dead(lease_left))


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # no Linux: leases decide
        return ""


def _started(pid: int) -> str:
    """When the process began, in ticks since the boot (proc(5), field 22). Empty: there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]  # a zombie has ended and was not waited for
