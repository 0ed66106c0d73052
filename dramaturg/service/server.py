"""The server of a service, and the process that runs it.

A ``Server`` serves contracts together with the standard health service, reflection and ``IdentityService``;
``run`` makes a process of it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import grpc
from grpc_health.v1 import health_pb2
from pydantic import ValidationError

from dramaturg.api.identity.v1 import identity_service_pb2, identity_service_pb2_grpc
from dramaturg.service import installed, listener, logs
from dramaturg.service.auth import audit
from dramaturg.service.auth.caller import is_loopback
from dramaturg.service.auth.guard import Guard, guard
from dramaturg.service.auth.settings import AuthSettings
from dramaturg.service.contract import Backend, Contract, Front
from dramaturg.service.files import server_credentials
from dramaturg.service.health import ContractHealth, HealthServicer
from dramaturg.service.installed import App
from dramaturg.service.interceptors import server_interceptor
from dramaturg.service.interceptors.chain import InterceptorChain
from dramaturg.service.listener import (
    IdentityServicer,
    Option,
    ProbeServer,
    Registration,
    bind,
    server_options,
)
from dramaturg.service.settings import ServerSettings, SettingsError, check_names, explain
from dramaturg.service.telemetry import telemetry

__all__ = ["Contract", "Server", "run"]

logger = logging.getLogger(__name__)

SWITCH_SECONDS = 0.0005
"""The time after which a thread hands the interpreter on; Python's default is ten times as long."""
_NOTICE_SECONDS = 1.0
"""How long before its connections close a stopping server tells the clients that watch its health."""
_READ_SECONDS = 0.2
"""How long connections stay open after the last answer of a drain. gRPC closes a connection with its last
call, and a client that writes to it then drops the answers that it has not read yet."""
_EVERY_ADDRESS = {"0.0.0.0", "[::]"}  # noqa: S104
_LAST_PORT = 65535


class Server:
    """Serves contracts on one port, and health for probes on another where the settings name one.

    Example:
        >>> async with Server([contract], ServerSettings(port=0)) as server:
        ...     async with open_channel(server.target) as channel:
        ...         stub = JudgeServiceStub(channel)

    A server belongs to the event loop that it is started in, and a process has one such loop: gRPC's asyncio
    part polls once for the whole process. In tests, make servers and channels in fixtures of the test's own
    loop.

    Args:
        contracts: The contracts.
        settings: Its settings.
        auth: How callers are authenticated. Absent: they are not, and may call everything.
        interceptors: Further interceptors of gRPC. They run inside those of the server
            (see ``dramaturg.service.interceptors``), the first one outermost.
        fronts: Other protocols that the contracts are served over.
        name: The service's name in the log and, beside the full names of its contracts, in health checks.
        beside: Servers of other services of this process. They start and drain together with this one, whose
            port for probes reports the health of all.

    Attributes:
        port: The port it listens on, once started.
        target: Where a client on this machine reaches it, once started.
    """

    def __init__(
        self,
        contracts: Sequence[Contract],
        settings: ServerSettings,
        auth: AuthSettings | None = None,
        *,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        fronts: Sequence[Front] = (),
        name: str = "",
        beside: Sequence[Server] = (),
    ) -> None:
        self.port = 0
        self._fronts = tuple(fronts)
        self._forwarding = AsyncExitStack()
        self._interceptors = tuple(interceptors)
        self._auth = auth
        self._contracts = tuple(contracts)
        self._settings = settings
        self._name = name
        self._beside = tuple(beside)
        self._health = HealthServicer(_health_by_name([self]))
        # That of the port for probes.
        self._health_of_all = HealthServicer(_health_by_name([self, *beside])) if beside else self._health
        self._server: grpc.aio.Server | None = None
        self._calls: InterceptorChain | None = None
        self._probes: ProbeServer | None = None

    @property
    def target(self) -> str:
        """The address for a client on this machine, for example "127.0.0.1:50051"."""
        host = "127.0.0.1" if self._settings.host in _EVERY_ADDRESS else self._settings.host
        return f"{host}:{self.port}"

    async def start(self) -> None:
        """Starts to listen.

        Raises:
            OSError: The address cannot be listened on.
            SettingsError: A certificate or a file of tokens cannot be read, a method has no permission, or
                the default deadline is too short for a contract.
        """
        self._check_default_deadline()
        callers = guard(self._auth, self._contracts)
        calls = server_interceptor(self._settings, callers, self._contracts, self._interceptors)
        server = grpc.aio.server(interceptors=[calls], options=self._options())
        # Generated code asks a server for no more than this.
        registration = cast("grpc.aio.Server", Registration(server))
        for contract in self._contracts:
            contract.add(contract.servicer, registration)
        identity_service_pb2_grpc.add_IdentityServiceServicer_to_server(
            IdentityServicer(self._contracts), registration
        )
        self._health.add_to(registration)
        listener.enable_reflection(self._service_names(), server)
        settings = self._settings
        self.port = bind(server, settings.host, settings.port, server_credentials(settings))
        socket = self._make_socket(server) if self._fronts else ""
        if settings.probe_port:
            self._probes = ProbeServer(self._health_of_all, settings.host, settings.probe_port)
        await server.start()
        self._server, self._calls = server, calls
        try:
            for other in self._beside:
                await other.start()
            if self._probes is not None:
                await self._probes.start()
            if socket:
                await self._start_fronts(socket, callers)
        except BaseException:
            await self.drain()
            raise
        fields = {
            "service": self._name,
            "address": f"{settings.host}:{self.port}",
            "probe_port": settings.probe_port,
            "encrypted": settings.tls_certificate_file is not None,
            "contracts": self._contract_names(),
        }
        logger.info("listening", extra={"fields": fields})
        if (self._auth is None or not self._auth.enabled) and not is_loopback(
            f"{self._settings.host}:{self.port}"
        ):
            logger.warning("callers are not authenticated: everybody may call everything")

    async def drain(self) -> None:
        """Stops without a failed call.

        Reports not serving to probes and, for the last second of the drain delay, to clients, so that they
        call other servers, and then lets the calls in progress end and their callers read the answers, before
        it closes the connections. Calls that outlast the grace are cancelled. Probes are answered until
        then.
        """
        server, self._server = self._server, None
        if server is None:
            return
        await asyncio.gather(self._drain(server), *(other.drain() for other in self._beside))
        if self._probes is not None:
            await self._probes.stop()

    async def _drain(self, server: grpc.aio.Server) -> None:
        logger.info("draining", extra={"fields": {"target": self.target}})
        delay = self._settings.drain_delay_seconds
        notice = min(delay, _NOTICE_SECONDS)
        reports = {self._health, self._health_of_all}
        for health in reports:
            health.leave()
        await asyncio.sleep(delay - notice)
        for health in reports:
            health.shut_down()
        await asyncio.sleep(notice)
        for health in reports:
            health.close()
        await asyncio.gather(*(front.close() for front in self._fronts))
        await asyncio.gather(*(front.stop() for front in self._fronts), self._stop(server))
        await self._forwarding.aclose()
        logger.info("stopped", extra={"fields": {"target": self.target}})

    async def _stop(self, server: grpc.aio.Server) -> None:
        end = time.monotonic() + self._settings.drain_grace_seconds
        if self._calls is not None and await self._calls.answered(self._settings.drain_grace_seconds):
            await asyncio.sleep(_READ_SECONDS)
        await server.stop(max(0.0, end - time.monotonic()))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain()

    def _make_socket(self, server: grpc.aio.Server) -> str:
        """Binds the server to a socket in a folder that no other user can enter; returns its target."""
        try:
            folder = self._forwarding.enter_context(tempfile.TemporaryDirectory(prefix="dramaturg-"))
        except OSError as error:
            raise SettingsError(f"no temporary folder can be made for a socket: {error.strerror}") from error
        target = f"unix:{Path(folder) / 'server'}"
        try:
            server.add_insecure_port(target)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {target}") from error
        return target

    async def _start_fronts(self, socket: str, callers: Guard) -> None:
        # The largest response is what the caller accepts, and retries are the caller's.
        options: list[Option] = [("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0)]
        channel = await self._forwarding.enter_async_context(
            grpc.aio.insecure_channel(socket, options=options)
        )
        authenticates = self._auth is not None and self._auth.enabled
        backend = Backend(
            channel,
            self._contracts,
            self._settings,
            authenticates,
            callers.authenticate,
            callers.find_caller,
        )
        for front in self._fronts:
            await front.start(backend)

    def _options(self) -> list[Option]:
        return server_options(
            self._settings, unlimited=any(contract.unlimited for contract in self._contracts)
        )

    def _check_default_deadline(self) -> None:
        least = max((contract.minimum_default_seconds for contract in self._contracts), default=0)
        if self._settings.default_deadline_seconds <= least:
            raise SettingsError(
                f"{ServerSettings.variable('default_deadline_seconds')}="
                f"{self._settings.default_deadline_seconds:g} is not above the {least:g} s that calls of a "
                "dependency may take: a call without a deadline would end before them"
            )

    def _contract_names(self) -> list[str]:
        return [contract.full_name for contract in self._contracts]

    def _service_names(self) -> list[str]:
        return [
            *self._contract_names(),
            identity_service_pb2.DESCRIPTOR.services_by_name["IdentityService"].full_name,
            health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
            listener.SERVICE_NAME,
        ]


def _health_by_name(servers: Sequence[Server]) -> Mapping[str, Sequence[ContractHealth]]:
    """The contracts by their full names and by the names of their services; services may share a contract."""
    named: defaultdict[str, list[ContractHealth]] = defaultdict(list)
    for server in servers:
        for contract in server._contracts:
            named[contract.full_name].append(contract.health)
            if server._name:
                named[server._name].append(contract.health)
    return named


def run(
    app: App | Callable[[], App | Sequence[App]],
    argv: Sequence[str] | None = None,
    *,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    log_file: Path | None = None,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Runs services as a process until SIGTERM or SIGINT, then drains them.

    The first service listens on the port of the settings, each other one on the next port.

    The settings are read here when ``app`` is the class and not an instance, so that bad ones end with a
    message and not with a traceback. Exit codes: 0 after a drain, 1 where the address cannot be listened on,
    2 for bad settings. A second signal ends the process at once.

    Args:
        app: The service's ``App`` class, an instance, or a function that returns one or several instances.
        argv: Command-line arguments (``--host``, ``--port``); by default those of the process.
        interceptors: Further interceptors of gRPC (see ``Server``).
        log_file: The file of the log (see ``logs.configure``). None: standard error.
        announce: Called with the address of the first server once all servers and their fronts listen.
    """
    parser = argparse.ArgumentParser(description="Serves one of dramaturg's services.")
    parser.add_argument("--host", help=f"the address to listen on (or {ServerSettings.variable('host')})")
    parser.add_argument(
        "--port", type=int, help=f"the port to listen on (or {ServerSettings.variable('port')})"
    )
    given = {key: value for key, value in vars(parser.parse_args(argv)).items() if value is not None}
    try:
        settings, auth = ServerSettings(**given), AuthSettings()
        logs.configure(settings.log_level, log_file)
        audit.configure(auth.audit)
        made = app() if callable(app) else app
        check_names(installed.sections())
        services: Sequence[App] = made if isinstance(made, Sequence) else [made]
        ports = _ports(settings, services)
        for service in services:
            _check_authentication(service, settings.host, auth)
        if not any(getattr(service, "public", False) for service in services):
            _use_batch_policy()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(list(zip(services, ports, strict=True)), auth, interceptors, announce))
    except ValidationError as error:
        _fail(explain(error), code=2)
    except SettingsError as error:
        _fail(str(error), code=2)
    except OSError as error:
        _fail(str(error), code=1)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _ports(settings: ServerSettings, services: Sequence[App]) -> Sequence[ServerSettings]:
    """The settings of each service: a port of its own, and the port for probes with the first one.

    Raises:
        SettingsError: A port is above the highest one, or is the port for probes.
    """
    found = [settings]
    for number, service in enumerate(services[1:], start=1):
        port = settings.port and settings.port + number
        if port > _LAST_PORT or (port and port == settings.probe_port):
            raise SettingsError(
                f"{service.name} would listen on port {port}, which "
                f"{'is none' if port > _LAST_PORT else 'probes ask'}: the services take the ports from "
                f"{settings.port} on; choose another {ServerSettings.variable('port')} or --port"
            )
        found.append(settings.model_copy(update={"port": port, "probe_port": 0}))
    return found


def _use_batch_policy() -> None:
    """Puts this process under Linux's batch policy (sched(7)), unless it was started under another one.

    Each message wakes several threads of gRPC. Under this policy they do not interrupt the event loop or
    other services where processors are busy (docs/operate/generation.md states the gain,
    docs/operate/operations.md the price). Threads and processes that are started later inherit it.
    """
    if sys.platform == "linux" and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with suppress(OSError):  # a sandbox may forbid it; the process then takes more time, nothing else
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _check_authentication(app: App, host: str, auth: AuthSettings) -> None:
    exposed = not is_loopback(f"{host}:0")
    if getattr(app, "public", False) and exposed and not auth.enabled and not auth.allow_anonymous:
        raise SettingsError(
            f"{app.name} listens on {host} and authenticates no callers: set "
            f"{AuthSettings.variable('tokens_file')} or another source of identities "
            "(docs/operate/security.md), or "
            f"{AuthSettings.variable('allow_anonymous')}=true to let everybody call everything"
        )


async def _serve(
    services: Sequence[tuple[App, ServerSettings]],
    auth: AuthSettings,
    interceptors: Sequence[grpc.aio.ServerInterceptor],
    announce: Callable[[str], None] | None,
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        # A second signal ends the process without the drain.
        for number in signals:
            loop.remove_signal_handler(number)
        stopping.set()

    for number in signals:
        loop.add_signal_handler(number, stop)
    fronts: dict[str, Sequence[Front]] = {
        app.name: app.fronts(settings) if hasattr(app, "fronts") else () for app, settings in services
    }
    for app, _ in services:
        for front in fronts[app.name]:
            _check_authentication(app, front.host, auth)
    async with AsyncExitStack() as stack:
        name = "+".join(fronts)
        await stack.enter_async_context(telemetry(name, services[0][1].host))
        servers: list[Server] = []
        for app, settings in reversed(services):
            contracts = await stack.enter_async_context(app.open())
            is_first = len(servers) == len(services) - 1
            server = Server(
                contracts,
                settings,
                auth,
                interceptors=interceptors,
                fronts=fronts[app.name],
                name=app.name,
                beside=servers if is_first else (),
            )
            servers.append(server)
        first = await stack.enter_async_context(servers[-1])
        if announce is not None:
            announce(first.target)
        # Objects that exist now exist until the end: repeated searches for garbage among them take a seventh
        # of all processor time under load (docs/operate/generation.md).
        gc.collect()
        gc.freeze()
        # A call makes thousands of objects, and nearly all are freed by their reference counts.
        gc.set_threshold(20_000, 20, 20)
        # The event loop waits for this time at most for each thread that computes.
        sys.setswitchinterval(SWITCH_SECONDS)
        await stopping.wait()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _fail(message: str, *, code: int) -> None:
    sys.stderr.write(f"{message}\n")
    sys.exit(code)
