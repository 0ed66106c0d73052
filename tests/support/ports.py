"""Ports for servers that must know theirs before they start, or keep it over restarts."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TextIO

_LOWEST = 15_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FOLDER = Path(tempfile.gettempdir()) / f"dramaturg-test-ports-{os.getuid()}"

# Open as long as this process lives: a file's lock is what keeps its port from other test processes.
_held: list[TextIO] = []


def free_port(count: int = 1) -> int:
    """The first of consecutive ports that nobody listens on, and that nobody but the caller will be given.

    A port that the system picks (by binding port 0) is free only at that moment: a second later it may be
    the near end of anybody's connection. This one lies below those that the system picks, and no other test
    process on this machine is given it before this one ends.
    """
    highest = _first_picked_by_the_system() - count
    for first in random.sample(range(_LOWEST, highest + 1), k=highest + 1 - _LOWEST):
        if all(_reserve(port) and _bindable(port) for port in range(first, first + count)):
            return first
    raise RuntimeError(f"no port from {_LOWEST} to {highest} is free")


def _first_picked_by_the_system() -> int:
    with suppress(OSError):
        return int(_RANGE.read_text().split()[0])
    return 32_768


def _reserve(port: int) -> bool:
    _FOLDER.mkdir(exist_ok=True)
    lock = (_FOLDER / str(port)).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return False
    _held.append(lock)
    return True


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
