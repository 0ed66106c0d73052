"""A pod of a rendering as a process on this machine, without what it calls."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from dramaturg.client import DramaturgClient
from dramaturg.service.settings import ChannelSettings
from tests.cluster.replicas import Replica, entrypoint, wait_for
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
    without: str = "",
    optional: Secrets | None = None,
    name: str = "gateway",
    address: str = ADDRESS,
) -> AsyncIterator[tuple[Replica, asyncio.subprocess.Process]]:
    """A service, the gateway with a SQLite store and the token of the file ``token``.

    Args:
        rendering: Its manifests.
        place: Where everything that it reads and writes is.
        variables: Further variables.
        without: A variable that it does not get.
        optional: Secrets that it can do without.
        name: The service that is started.
        address: Where its ports are.
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
    environment = {name: value for name, value in replica.environment.items() if name != without}
    with replica.log.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command(pod), cwd=place, env=environment, stdout=log, stderr=log
        )
    try:
        yield replica, process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def command(pod: Pod) -> list[str]:
    """The program of a pod, and its arguments."""
    if "command" in pod.container:
        program, *arguments = pod.container["command"]
        return [str(Path(sys.executable).with_name(program)), *arguments]
    return [*entrypoint(), *pod.container["args"]]


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


async def wait_until_ready(replica: Replica, process: asyncio.subprocess.Process) -> None:
    """Waits for the readiness probe of the manifest, for up to a minute."""
    probe = {**replica.pod.container["readinessProbe"], "failureThreshold": 12}
    ready = await wait_for(probe, replica.address, lambda: process.returncode is None)
    assert ready, replica.log.read_text()
