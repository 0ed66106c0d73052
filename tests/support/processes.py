"""Services as processes of their own, which can be killed."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.command_line import ROOT
from tests.support.command_server import Fork
from tests.support.ports import free_port

START_SECONDS = 100.0
_BACKOFF = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 50)]


def plain(target: str) -> grpc.aio.Channel:
    """A channel that tries to connect again at once: gRPC itself waits a second, then more."""
    return grpc.aio.insecure_channel(target, options=_BACKOFF)


Process = asyncio.subprocess.Process | Fork


class ProcessEndedError(AssertionError):
    """A process has ended before it served."""


async def until_serving(
    target: str,
    process: Process,
    connect: Callable[[str], grpc.aio.Channel] = plain,
) -> None:
    """Waits until a process serves.

    Raises:
        ProcessEndedError: It has ended.
    """
    async with asyncio.timeout(START_SECONDS), connect(target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            try:
                await stub.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=1)
            except grpc.aio.AioRpcError:
                if process.returncode is not None:
                    raise ProcessEndedError from None
            else:
                return


class ServiceProcess:
    """A service that runs as ``python -m MODULE ... --port PORT``; its port stays the same over restarts.

    Attributes:
        target: Where it is reached.
        log: The file that its output goes to.
    """

    def __init__(
        self,
        module: str,
        folder: Path,
        environment: Mapping[str, str],
        *arguments: str,
        connect: Callable[[str], grpc.aio.Channel] = plain,
    ) -> None:
        """Starts nothing yet.

        Args:
            module: What runs.
            folder: Where its output goes.
            environment: Its variables, besides those of this process.
            arguments: What stands between the module and the port.
            connect: Opens a channel to it, to see when it serves.
        """
        self._connect = connect
        self.port = free_port()
        self.target = f"127.0.0.1:{self.port}"
        self.log = folder / f"{module}-{self.port}.log"
        self._module = module
        self._arguments: Sequence[str] = (*arguments, "--port", str(self.port))
        self._environment = {**os.environ, **environment}
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """The number of the running process."""
        assert self._process is not None
        return self._process.pid

    def memory_mb(self) -> float:
        """The resident memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    async def start(self) -> None:
        """Starts it and waits until it serves."""
        with self.log.open("ab") as log:
            self._process = await self._spawn(log.fileno())
        try:
            await until_serving(self.target, self._process, connect=self._connect)
        except ProcessEndedError:
            raise AssertionError(self.log.read_text()) from None

    async def _spawn(self, log: int) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self._module, *self._arguments),
            cwd=ROOT,
            env=self._environment,
            stdout=log,
            stderr=log,
        )

    async def kill(self) -> None:
        """Kills it as the kernel does: nothing in it runs any more."""
        await self.stop(signal.SIGKILL)

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends it and waits until it has ended."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.send_signal(how)
            await process.wait()

    async def ended(self) -> int:
        """Waits until it has ended by itself; returns its exit status."""
        process, self._process = self._process, None
        assert process is not None
        async with asyncio.timeout(START_SECONDS):
            return await process.wait()


class ForkedService(ServiceProcess):
    """A service that runs as ``dramaturg ... --port PORT``, whose modules are imported before it starts.

    Tests of what a kill or many processes do need no second of imports for each start.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *arguments: str,
        connect: Callable[[str], grpc.aio.Channel] = plain,
    ) -> None:
        """Starts nothing yet; the arguments are those of ``ServiceProcess``."""
        super().__init__("dramaturg", folder, environment, *arguments, connect=connect)

    async def _spawn(self, log: int) -> Process:
        return await Fork.start(self._arguments, self._environment, log)


def worker_processes() -> list[int]:
    """The processes of this one with limits of memory."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        # Threads and processes end at any time.
        with suppress(OSError):
            children = (task / "children").read_text().split()
            for child in children:
                with suppress(OSError):
                    if b"gateway.processes.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                        found.append(int(child))
    return found
