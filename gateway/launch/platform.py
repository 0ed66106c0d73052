"""The platform in one process: every service on a separate loopback port, and the gateway.

Services are started with their dependencies.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from dramaturg.judge.roles import ROLES
from dramaturg.service import installed
from dramaturg.service.auth.caller import is_loopback
from dramaturg.service.auth.settings import AuthSettings
from dramaturg.service.contract import Contract, Front
from dramaturg.service.installed import backends, find_app, service_names, settings_type
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings, Settings, check_names, is_configured
from gateway.app import App as Gateway
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings, JudgeEntry

Service = Callable[[], AbstractAsyncContextManager[str]]
"""Starts a service, yields its address, and stops it."""

_CHUNK = 1 << 16
NO_MODEL = (
    "No model is configured, so the offline judges serve: they judge what rules and embeddings can, and "
    "abstain from the rest. Set MODEL, and OPENAI_API_KEY for the key of a provider, or OPENAI_BASE_URL for "
    "the address of a server; or name the file of a model, --judge-model ./model.gguf; or a provider in the "
    'file that DRAMATURG_CONFIG names, as "dramaturg init" writes one.'
)

DRAIN_SECONDS = 5.0
"""How long the samples of a command may continue when it ends before its run."""
LOOPBACK_JUDGES = ("localhost:*", "127.0.0.1:*", "[::1]:*")
"""The addresses at which a platform for its own machine permits judges, where the settings name none."""


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
        # uvloop raises RuntimeError for what is written to a connection that is closed.
        while (chunk := await reader.read(_CHUNK)) and not writer.is_closing():
            writer.write(chunk)
            await writer.drain()
        if not writer.is_closing():
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


@dataclass(frozen=True)
class Overview:
    """The services of a platform."""

    services: Sequence[RunningService]
    """The services other than the gateway, in the order started."""
    notice: str
    """A message for the user. Empty: none."""


class Platform:
    """All services and the gateway as one service, with the contracts of the gateway.

    Every agent is served with each of its backends, registered under the backend's name.

    Args:
        roles: The roles to serve. Empty: all.
        announce: Called with the services before the gateway accepts calls.
        runs: The settings of runs. None: read from the environment.
        lazy: Whether a service starts on its first call. Otherwise all start before the gateway.
        http_port: The port of the API over HTTP. None: as configured.
        announce_http: Called with the address of the API over HTTP once it listens, whether it has the
            console, and whether it has another port than the default because that is in use.
    """

    name = "platform"
    public = True

    def __init__(
        self,
        roles: Sequence[str] = (),
        announce: Callable[[Overview], None] | None = None,
        runs: RunsSettings | None = None,
        *,
        lazy: bool = False,
        http_port: int | None = None,
        announce_http: Callable[[str, bool, bool], None] | None = None,
    ) -> None:
        self._http_port = http_port
        self._announce_http = announce_http
        self._is_local = False
        self._roles = [ROLES[name] for name in roles or ROLES]
        self._announce = announce
        self._runs = runs
        self._lazy = lazy

    def fronts(self, server: ServerSettings) -> Sequence[Front]:
        """The API over HTTP, unless its port is 0."""
        from gateway.http.server import DEFAULT_PORT, HttpServer

        self._is_local = is_loopback(f"{server.host}:0") and not AuthSettings().enabled
        settings = GatewaySettings()
        http = settings.http
        wanted = http.port if self._http_port is None else self._http_port
        if wanted == 0:
            return ()
        port = wanted or (DEFAULT_PORT if server.port else 0)
        console, announce_http = settings.console is not False, self._announce_http

        def announce(url: str) -> None:
            if announce_http is not None:
                announce_http(url, console, wanted is None and not url.endswith(f":{port}") and port != 0)

        return [
            HttpServer(
                http,
                port,
                or_any_port=wanted is None,
                announce=announce,
                console=console,
            )
        ]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """Starts the services, yields the gateway's contracts, and stops the services in reverse order."""
        async with AsyncExitStack() as stack:
            activations = await stack.enter_async_context(Activations()) if self._lazy else None
            launcher = Launcher(stack, activations)
            judges: list[JudgeEntry] = []
            installed = service_names()
            for role in self._roles:
                for service in role.services:
                    if service in installed:
                        judges += await launcher.judges(role.name, service)
            settings = await launcher.settings(GatewaySettings, {})
            has_model = _has_model()
            wired = _register(settings.judges, judges, WITH_MODEL if has_model else WITHOUT_MODEL)
            if self._announce is not None:
                self._announce(Overview(launcher.services, "" if has_model else NO_MODEL))
            # Constructed anew, since a copy is not validated.
            values = {name: getattr(settings, name) for name in settings.model_fields_set}
            if self._is_local:
                values.setdefault("judge_targets", LOOPBACK_JUDGES)
            # A command is the only caller: no other one waits for its reports.
            alone = {"worker_processes": 0} if self._lazy else {}
            gateway = Gateway(
                # The judges run in this process. A check would start those that start on their first call.
                GatewaySettings(**{**values, "judges": wired, "identity_check_seconds": 0, **alone}),
                self._runs,
            )
            yield await stack.enter_async_context(gateway.open())


@asynccontextmanager
async def local_platform(
    announce: Callable[[Overview], None] | None = None,
    roles: Sequence[str] = (),
    run_store: Path | None = None,
) -> AsyncIterator[str]:
    """Serves a gateway in this process for the duration of a command, and yields its address.

    A service starts on its first call.

    Args:
        announce: Called with the services.
        roles: The roles that the command uses. Empty: all.
        run_store: The absolute path of the SQLite file of the runs. None: runs are disabled.
    """
    check_names(installed.sections())
    runs = RunsSettings(enabled=False)
    if run_store is not None:
        url = f"sqlite:///{run_store}"
        # The judges run in this process, so that none restarts while the others wait for it.
        runs = RunsSettings(
            enabled=True, url=url, drain_timeout_seconds=DRAIN_SECONDS, outage_timeout_seconds=0
        )
    # Idle threads of OpenBLAS spin. Half of the cores remain for the event loop.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // 2)))
    async with (
        Platform(roles, announce, runs, lazy=True).open() as contracts,
        Server(contracts, ServerSettings.loopback()) as gateway,
    ):
        yield gateway.target


def _has_model() -> bool:
    """Whether the generation service has a provider, configured or in the variables of the openai package."""
    # The service is not imported: its import takes longer than most commands.
    return is_configured("generation", "providers") or any(
        os.environ.get(name) for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL")
    )


def _register(
    configured: Sequence[JudgeEntry], started: Sequence[JudgeEntry], preferred: str
) -> Sequence[JudgeEntry]:
    """The configured judges, then those started here.

    A configured judge replaces a started one of the same role and name, and serves the role by default if
    that one did. A configured default replaces the default of the started ones.
    """
    decided = {judge.role for judge in configured if judge.default}
    chosen = {preferred} if preferred == WITH_MODEL else {preferred, BUILT_IN}
    judges = {(judge.role, judge.name): judge for judge in configured}
    for judge in started:
        default = judge.name in chosen and judge.role not in decided
        registered = judges.get((judge.role, judge.name), judge)
        judges[judge.role, judge.name] = registered.model_copy(
            update={"default": registered.default or default}
        )
    return list(judges.values())
