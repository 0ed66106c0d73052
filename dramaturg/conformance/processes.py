"""A server that the kit starts itself, and may stop."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import BinaryIO

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg.service.channel import open_channel

PORT_VARIABLES = ("PORT", "DRAMATURG_SERVER_PORT")
"""The environment variables with the port that a started server must listen on."""
CONNECT_SECONDS = 5.0
"""How long a connection to the address of a server may take."""
_POLL_SECONDS = 0.05
# gRPC itself tries to connect again after a second, then later.
_BACKOFF = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 50)]
_OUTPUT_BYTES = 2000
"""The end of a server's output that is part of the error."""


class StartError(Exception):
    """No server answers at the address; or the command starts none, and the message ends with its output."""


class ServerProcess:
    """A running server.

    Attributes:
        target: Its address.
    """

    def __init__(self, target: str, process: asyncio.subprocess.Process) -> None:
        self.target = target
        self._process = process

    @property
    def exit_code(self) -> int | None:
        """The exit code; negative: the signal that ended it. None: it runs."""
        return self._process.returncode

    def stop(self) -> None:
        """Sends SIGTERM to the process itself, as Kubernetes does."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    async def ended(self) -> int:
        """Waits for the end of the process and returns its exit code."""
        return await self._process.wait()

    def kill(self) -> None:
        """Ends the process and those that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


@asynccontextmanager
async def started(
    command: str | Sequence[str], contract: str, *, timeout: float = 60.0
) -> AsyncIterator[ServerProcess]:
    """Starts a server on a free port of this machine, and ends it.

    Args:
        command: The command, without a shell. ``{port}`` in it is replaced by the port, which the environment
            variables of ``PORT_VARIABLES`` have too. A text is split like a shell would.
        contract: The full name of the contract, whose health is waited for.
        timeout: The most seconds until the server is serving. After them it is taken as it is, if it listens.

    Raises:
        StartError: The command cannot be started, ended, or does not listen in time.
    """
    words = shlex.split(command) if isinstance(command, str) else list(command)
    port = _free_port()
    with tempfile.TemporaryFile() as output:
        try:
            process = await asyncio.create_subprocess_exec(
                *(word.replace("{port}", str(port)) for word in words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **dict.fromkeys(PORT_VARIABLES, str(port))},
                start_new_session=True,
            )
        except (OSError, IndexError, TypeError) as error:
            raise StartError(f"the command {shlex.join(words)!r} cannot be started: {error}") from error
        server = ServerProcess(f"127.0.0.1:{port}", process)
        try:
            await _until_serving(server, contract, timeout, output)
            yield server
        finally:
            server.kill()
            await server.ended()


@asynccontextmanager
async def reached(
    target: str, command: str | Sequence[str], contract: str, *, timeout: float
) -> AsyncIterator[tuple[str, ServerProcess | None]]:
    """The address of a server, and its process where a command starts it.

    Raises:
        ValueError: Not one of address and command is given.
        StartError: No server answers at the address, or the command does not start one.
    """
    if bool(target) == bool(command):
        raise ValueError("give the address of the server, or the command that starts it")
    if target:
        async with open_channel(target) as channel:
            try:
                await asyncio.wait_for(channel.channel_ready(), CONNECT_SECONDS)
            except TimeoutError as error:
                raise StartError(
                    f"no connection to {target} within {CONNECT_SECONDS:g} seconds: start the server, or "
                    "correct the address or the TLS settings"
                ) from error
        yield target, None
    else:
        async with started(command, contract, timeout=timeout) as process:
            yield process.target, process


async def _until_serving(server: ServerProcess, contract: str, timeout: float, output: BinaryIO) -> None:
    request = health_pb2.HealthCheckRequest(service=contract)
    serving = health_pb2.HealthCheckResponse.SERVING
    loop = asyncio.get_running_loop()
    deadline, listens = loop.time() + timeout, False
    async with grpc.aio.insecure_channel(server.target, options=_BACKOFF) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        while loop.time() < deadline:
            if server.exit_code is not None:
                raise StartError(f"the server ended with exit code {server.exit_code}{_end_of(output)}")
            try:
                listens = True
                if (await health.Check(request, timeout=timeout)).status == serving:
                    return
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    return  # it listens, and has no such health: a check says so
                listens = False
            await asyncio.sleep(_POLL_SECONDS)
    if not listens:
        raise StartError(f"the server does not listen on {server.target}{_end_of(output)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_of(output: BinaryIO) -> str:
    output.seek(0, os.SEEK_END)
    output.seek(max(0, output.tell() - _OUTPUT_BYTES))
    text = output.read().decode(errors="replace").strip()
    return f"; its output ends with:\n{text}" if text else ""
