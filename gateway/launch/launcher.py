"""Starts services in this process, with their dependencies."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from dramaturg.service.installed import backends, find_app, settings_type
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings, Settings
from gateway.settings import JudgeEntry

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


WITH_MODEL = "llm"
"""The backend and registered name of judges that call a model."""
WITHOUT_MODEL = "offline"
"""The backend and registered name of judges that call no model."""
BUILT_IN = "built-in"
"""The registered name of a service without a model and without backends."""

_TARGET = "_target"

SomeSettings = TypeVar("SomeSettings", bound=Settings)


@dataclass(frozen=True)
class RunningService:
    """A service in this process."""

    name: str
    """The service's name."""
    backend: str
    """Its backend. Empty: the service has no backends."""
    target: str
    """Its address."""


class Launcher:
    """Starts services on loopback ports.

    The settings of a service state its dependencies: a field ``generation_target`` that is not configured
    gets the address of a generation service started for it.

    Args:
        stack: Stops the services.
        activations: Starts a service on its first call. None: services start at once.

    Attributes:
        services: The services, in the order requested.
    """

    def __init__(self, stack: AsyncExitStack, activations: Activations | None = None) -> None:
        self.services: list[RunningService] = []
        self._stack = stack
        self._activations = activations
        self._targets: dict[str, str] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def judges(self, role: str, service: str) -> Sequence[JudgeEntry]:
        """The judges that a service provides for a role: one for each backend."""
        settings = settings_type(find_app(service))
        choices = backends(settings)
        if not choices:
            calls_model = service == "generation" or f"generation{_TARGET}" in settings.model_fields
            name = WITH_MODEL if calls_model else BUILT_IN
            return [JudgeEntry(role=role, name=name, target=await self._target(service))]
        return [
            JudgeEntry(role=role, name=choice, target=await self._start(service, backend=choice))
            for choice in choices
        ]

    async def settings(self, kind: type[SomeSettings], given: Mapping[str, Any]) -> SomeSettings:
        """Settings with the addresses of started services in place of those not configured.

        Args:
            kind: The class of the settings.
            given: Values that override the environment.
        """
        configured = kind(**given).model_fields_set
        targets = {
            field: await self._target(field.removesuffix(_TARGET).replace("_", "-"))
            for field in kind.model_fields
            if field.endswith(_TARGET) and field not in configured
        }
        return kind(**given, **targets)

    async def _target(self, name: str) -> str:
        # Services that start concurrently share their dependencies.
        async with self._locks[name]:
            if name not in self._targets:
                self._targets[name] = await self._start(name)
            return self._targets[name]

    async def _start(self, name: str, **given: str) -> str:
        service = partial(self._serve, name, given)
        if self._activations is None:
            target = await self._stack.enter_async_context(service())
        else:
            target = await self._activations.add(service)
        self.services.append(RunningService(name, given.get("backend", ""), target))
        return target

    @asynccontextmanager
    async def _serve(self, name: str, given: Mapping[str, str]) -> AsyncIterator[str]:
        app = find_app(name)
        settings = await self.settings(settings_type(app), given)
        async with (
            app(settings=settings).open() as contracts,
            Server(contracts, ServerSettings.loopback()) as server,
        ):
            yield server.target
