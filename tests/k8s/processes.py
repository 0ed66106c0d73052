"""A pod of a rendering as a process on this machine, without what it calls."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from dramaturg.client import DramaturgClient
from dramaturg.service.settings import ChannelSettings
from tests.cluster.replicas import Replica, command
from tests.cluster.volumes import Secrets, Tokens, issue
from tests.k8s.rendered import ROOT, Pod, Rendering
from tests.support.certificates import Authority

ADDRESS = f"127.{32 + (os.getpid() >> 8) % 32}.{os.getpid() % 256}.1"
"""Where the ports of the process are."""


@asynccontextmanager
async def started(
    rendering: Rendering,
    place: Path,
    variables: Mapping[str, str],
    *,
    without: str = "",
    optional: Secrets | None = None,
    name: str = "gateway",
    address: str = ADDRESS,
    ready: bool = True,
) -> AsyncIterator[Replica]:
    """A service, the gateway with a SQLite store and the token of the file ``token``.

    Args:
        rendering: Its manifests.
        place: Where everything that it reads and writes is.
        variables: Further variables.
        without: A variable that it does not get.
        optional: Secrets that it can do without.
        name: The service that is started.
        address: Where its ports are.
        ready: Whether its probes are waited for.
    """
    pod = rendering.pod(name)
    secrets = {
        "callers": Tokens(place).callers,
        "store-app": {"uri": ""},
        "store-ca": {"ca.crt": ""},
        **(optional or {}),
    }
    own = {"DRAMATURG_RUNS_URL": f"sqlite:///{place}/runs.sqlite3", **variables}
    replica = Replica(
        pod, rendering, name=name, address=address, folder=place, secrets=secrets, overrides=own
    )
    if replica.volumes.certificate is not None:
        authority = Authority(place / "authority")
        certificate = issue(authority, pod, rendering.namespace)
        replica.volumes.certificate.put(certificate, [authority.certificate])
    replica.environment.pop(without, None)
    await replica.start()
    try:
        if ready:
            await replica.wait_until_ready()
        yield replica
    finally:
        await replica.kill()


def caller(place: Path, address: str = ADDRESS) -> DramaturgClient:
    """A client of the gateway of ``started``, with its token."""
    settings = ChannelSettings(token_file=place / "token", token_over_plain_text=True)
    return DramaturgClient(f"{address}:50051", settings)


def bare(place: Path, **variables: str) -> dict[str, str]:
    """The variables of a process that reads nothing of this machine's, and those given."""
    return {"PATH": os.environ["PATH"], "HOME": str(place), "PYTHONPATH": str(ROOT), **variables}


def ran(pod: Pod, place: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the container of a pod to its end, with no other variables than those given."""
    return subprocess.run(
        command(pod), env=bare(place, **variables), cwd=place, capture_output=True, text=True, check=False
    )
