"""Names that resolve to all replicas, as a headless Service's do.

Every pod runs in a mount namespace of its own, in which a file of ours stands in the place of /etc/hosts. So
the configuration keeps its names, and gRPC's resolver finds, loses and finds again addresses behind them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.k8s.rendered import COREDNS_SECONDS

LAG_SECONDS = float(COREDNS_SECONDS)
"""How long an old answer may still be given."""
_SIZE = 1 << 14


class Names:
    """The addresses behind each name. What is added or taken away is seen after LAG_SECONDS.

    Args:
        file: The hosts file.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._addresses: dict[str, list[str]] = {}
        file.touch()
        self._write(self._text())

    def add(self, name: str, address: str) -> None:
        """Lets a name resolve to an address, too."""
        self._addresses.setdefault(name, []).append(address)
        self._publish()

    def remove(self, name: str, address: str) -> None:
        """Takes an address from a name."""
        self._addresses[name].remove(address)
        self._publish()

    def _publish(self) -> None:
        asyncio.get_running_loop().call_later(LAG_SECONDS, self._write, self._text())

    def _text(self) -> str:
        lines = [f"{address} {name}" for name, found in self._addresses.items() for address in found]
        return "\n".join(["127.0.0.1 localhost", *lines, ""])

    def _write(self, text: str) -> None:
        """One write of always the same size: who reads it meanwhile sees the old or the new names, not none,
        and the file stays the one that was mounted.
        """
        content = text.encode()
        assert len(content) <= _SIZE
        with self.file.open("r+b", buffering=0) as out:
            out.write(content.ljust(_SIZE, b"\n"))


def within(names: Names, host: str, command: Sequence[str]) -> list[str]:
    """The command line that runs a command where names are these and the machine is called ``host``."""
    script = 'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"'
    return [*_unshare(), "sh", "-c", script, host, str(names.file), *command]


def need_namespaces() -> None:
    """Skips the test where processes cannot be given names of their own."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare (util-linux) is not installed: names cannot be made to resolve to replicas")
    tried = subprocess.run(
        [*_unshare(), "mount", "--bind", "/dev/null", "/etc/hosts"], capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"mount namespaces are not allowed here: {tried.stderr.decode().strip()}")


def _unshare() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", "--uts", *user]
