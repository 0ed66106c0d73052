"""A replica: one pod as a process, with what its manifest declares and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.cluster.names import Names, within
from tests.cluster.volumes import Secrets, Volumes
from tests.k8s.rendered import ROOT, Pod, Rendering

_PROBE_SECONDS = 0.5
_SERVED = re.compile(r'"method": "/dramaturg\.api\.(?!identity\.)[^"]+", "code": "OK"')


class Replica:
    """One replica of a service, on an address of its own.

    Attributes:
        name: The pod's name.
        address: Where its ports are.
        volumes: Its volumes.
        log: The file of its output.
        checkout: The folder of the code that it runs.
    """

    def __init__(
        self,
        pod: Pod,
        rendering: Rendering,
        *,
        name: str,
        address: str,
        folder: Path,
        secrets: Secrets,
        overrides: Mapping[str, str],
        checkout: Path = ROOT,
    ) -> None:
        self.pod, self.name, self.address = pod, name, address
        self.volumes = Volumes(folder / name, pod, rendering, secrets)
        self.log = folder / f"{name}.log"
        declared = {
            variable: self.volumes.relocate(value)
            for variable, value in environment(pod, rendering.namespace, secrets).items()
        }
        # On one machine only the address tells replicas apart: "every address" would be the others', too.
        own = {"DRAMATURG_SERVER_HOST": address} if "DRAMATURG_SERVER_HOST" in declared else {}
        code = {"PYTHONPATH": str(checkout)}
        self.environment = {**bare_environment(folder / name), **code, **declared, **own, **overrides}
        self.checkout = checkout
        self._process: asyncio.subprocess.Process | None = None
        self._served = False

    @property
    def target(self) -> str:
        """The address of its contracts."""
        ports = {port["name"]: port["containerPort"] for port in self.pod.container["ports"]}
        return f"{self.address}:{ports['grpc']}"

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.returncode is None

    @property
    def memory_bytes(self) -> int:
        """The resident memory of its processes. Pages that they share count for each of them."""
        assert self._process is not None
        return sum(_resident_bytes(pid) for pid in _with_children(self._process.pid))

    @property
    def served(self) -> bool:
        """Whether it has answered calls, beside those for its health and its identity."""
        self._served = self._served or _SERVED.search(self.log.read_text()) is not None
        return self._served

    async def start(self, names: Names | None = None) -> None:
        """Starts it.

        Args:
            names: The names it sees. ``None``: those of this machine.
        """
        line = command(self.pod)
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(within(names, self.name, line) if names else line),
                cwd=self.volumes.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    async def wait_until_ready(self) -> None:
        """Waits until its probes pass, for the readiness up to a minute."""
        for kind, more in (("startupProbe", {}), ("readinessProbe", {"failureThreshold": 12})):
            passed = await wait_for(self.pod.container[kind] | more, self.address, lambda: self.running)
            assert passed, f"{self.name}: the {kind} never passed\n{self.log.read_text()[-4000:]}"

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        assert self._process is not None
        return await self._process.wait()

    async def alive(self) -> bool:
        """Whether the kubelet would leave it running."""
        probe = self.pod.container["livenessProbe"]
        return self.running and await passes(probe, self.address)

    async def terminate(self) -> None:
        """Ends it as the kubelet does: SIGTERM, and the declared grace to drain in."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(self.ended(), self.pod.spec["terminationGracePeriodSeconds"])
        assert code == 0, f"{self.name} ended with {code}\n{self.log.read_text()[-4000:]}"

    async def kill(self) -> None:
        """Ends it at once."""
        if self.running:
            assert self._process is not None
            self._process.kill()
            await self._process.wait()


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from _with_children(int(child))


def _resident_bytes(pid: int) -> int:
    (found,) = re.findall(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found) * 1024


def environment(pod: Pod, namespace: str, secrets: Secrets) -> dict[str, str]:
    """The variables that a pod's container is given, with what they refer to filled in."""

    def value(entry: Mapping[str, Any]) -> str:
        source = entry.get("valueFrom", {})
        if reference := source.get("secretKeyRef"):
            return secrets[reference["name"]][reference["key"]]
        if reference := source.get("fieldRef"):
            if reference["fieldPath"] == "metadata.namespace":
                return namespace
            # Of a label, else of the pod and its node, which have no counterpart here.
            labels = re.findall(r"metadata\.labels\['(.+)'\]", reference["fieldPath"])
            return str(pod.labels[labels[0]]) if labels else pod.name
        # A variable is expanded where it stands before its use.
        return re.sub(r"\$\((\w+)\)", lambda match: given.get(match[1], match[0]), str(entry["value"]))

    given: dict[str, str] = {}
    for entry in pod.container.get("env", []):
        given[entry["name"]] = value(entry)
    return given


def bare_environment(home: Path) -> dict[str, str]:
    """What a process needs of this machine; nothing else of it reaches a pod."""
    return {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(home)}


def command(pod: Pod) -> list[str]:
    """The program of a pod and its arguments; without a command, the image's, as its Dockerfile says."""
    given = pod.container.get("command")
    if given is None:
        (found,) = re.findall(r"^ENTRYPOINT (\[.+\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
        given = [*json.loads(found), *pod.container.get("args", [])]
    return [str(Path(sys.executable).with_name(given[0])), *given[1:]]


async def passes(probe: Mapping[str, Any], address: str) -> bool:
    """Makes a declared probe once, in plain text and without any credentials."""
    asked = probe["grpc"]
    request = health_pb2.HealthCheckRequest(service=asked.get("service", ""))
    async with grpc.aio.insecure_channel(f"{address}:{asked['port']}") as channel:
        try:
            answer = await health_pb2_grpc.HealthStub(channel).Check(
                request, timeout=probe.get("timeoutSeconds", 1)
            )
        except grpc.aio.AioRpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def wait_for(probe: Mapping[str, Any], address: str, alive: Callable[[], bool]) -> bool:
    """Probes until it passes; false when it has not after as long as the manifest has patience.

    It is asked more often than declared, to lose no time, and for no longer.
    """
    loop = asyncio.get_running_loop()
    patience = probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10)
    give_up = loop.time() + patience
    while alive():
        if await passes(probe, address):
            return True
        if loop.time() > give_up:
            return False
        await asyncio.sleep(_PROBE_SECONDS)
    return False
