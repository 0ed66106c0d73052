"""Socket activation: the first connection to an address starts its service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

Service = Callable[[], AbstractAsyncContextManager[str]]
"""Starts a service, yields its address, and stops it."""

_CHUNK = 1 << 16


class Activations:
    """Addresses whose services start on the first connection.

    Connections are forwarded to the service. A service that fails to start ends the ``async with`` block with
    its error. On exit all services are stopped.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._leave = asyncio.Event()
        self._listeners: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def add(self, service: Service) -> str:
        """Listens for a service on a free loopback port and returns the address."""
        started: asyncio.Future[str] | None = None

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal started
            if started is None:
                started = asyncio.get_running_loop().create_future()
                self._group.create_task(self._run(service, started))
            task = asyncio.current_task()
            assert task is not None
            self._connections.add(task)
            try:
                await _forward(reader, writer, await asyncio.shield(started))
            except asyncio.CancelledError:
                # The callback of a connection's task in Python 3.11 logs a cancellation as an error.
                if not self._leave.is_set():
                    raise
            finally:
                self._connections.discard(task)
                writer.close()

        listener = await asyncio.start_server(connect, "127.0.0.1", 0)
        self._listeners.append(listener)
        host, port = listener.sockets[0].getsockname()
        return f"{host}:{port}"

    async def _run(self, service: Service, started: asyncio.Future[str]) -> None:
        async with service() as target:
            started.set_result(target)
            await self._leave.wait()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener in self._listeners:
            listener.close()
        self._leave.set()
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as failures:
            # The error of the service; an error of the block is its consequence.
            raise failures.exceptions[-1] from None
        finally:
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str) -> None:
    host, _, port = target.rpartition(":")
    there_reader, there_writer = await asyncio.open_connection(host, int(port))
    try:
        await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer))
    finally:
        there_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
    except OSError:  # one connection is closed; the other is closed with it
        writer.close()
