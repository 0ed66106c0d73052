"""The platform in one process: every service on a separate loopback port, and the gateway."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from dramaturg.judge.roles import ROLES
from dramaturg.service.auth.credentials import is_loopback
from dramaturg.service.auth.settings import AuthSettings
from dramaturg.service.contract import Contract
from dramaturg.service.front import Front
from dramaturg.service.installed import service_names
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings, is_configured
from gateway.app import App as Gateway
from gateway.launch.launcher import BUILT_IN, WITH_MODEL, WITHOUT_MODEL, Activations, Launcher, RunningService
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings, JudgeEntry

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
