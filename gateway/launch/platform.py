"""The whole platform in one process: every service on a loopback port of its own, and the gateway."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from dramaturg.judge.roles import ROLES
from dramaturg.service.contract import Contract
from dramaturg.service.installed import service_names
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings, is_configured
from gateway.app import App as Gateway
from gateway.launch.activation import Activations
from gateway.launch.launcher import BUILT_IN, WITH_MODEL, WITHOUT_MODEL, Launcher, RunningService
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings, JudgeEntry

NO_MODEL = (
    "No model is configured, so the offline judges serve: they judge what rules and embeddings can, and "
    "abstain from the rest. Set OPENAI_BASE_URL or OPENAI_API_KEY, and MODEL, or name a provider in the file "
    "that DRAMATURG_CONFIG names."
)


@dataclass(frozen=True)
class Overview:
    """The services of a platform."""

    services: Sequence[RunningService]
    """The services beside the gateway, in the order started."""
    notice: str
    """A message to the user. Empty: none."""


class Platform:
    """All services and the gateway as one service; its contracts are the gateway's.

    Every agent is served with each of its backends, registered under the backend's name.

    Args:
        roles: The roles to serve, with the services that they need. Empty: all.
        announce: Is called with the services before the gateway takes calls.
        runs: The settings of runs. None: those of the environment.
        lazy: Whether a service is started when it is first called. Otherwise all are started first.
    """

    name = "platform"

    def __init__(
        self,
        roles: Sequence[str] = (),
        announce: Callable[[Overview], None] | None = None,
        runs: RunsSettings | None = None,
        *,
        lazy: bool = False,
    ) -> None:
        self._roles = [ROLES[name] for name in roles or ROLES]
        self._announce = announce
        self._runs = runs
        self._lazy = lazy

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """Starts the services, yields the gateway's contracts, and stops the services, last started first."""
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
            # Not copied: a copy is not validated.
            values = {name: getattr(settings, name) for name in settings.model_fields_set}
            gateway = Gateway(GatewaySettings(**{**values, "judges": wired}), self._runs)
            yield await stack.enter_async_context(gateway.open())


@asynccontextmanager
async def local_platform(
    announce: Callable[[Overview], None] | None = None, roles: Sequence[str] = ()
) -> AsyncIterator[str]:
    """Serves a gateway in this process for the duration of a command, and yields its address.

    A service is started when it is first called. The gateway has no runs.

    Args:
        announce: Is called with the services.
        roles: The roles that the command uses. Empty: all.
    """
    # Threads of linear algebra that wait for a core spin. The event loop needs one, too.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // 2)))
    async with (
        Platform(roles, announce, RunsSettings(enabled=False), lazy=True).open() as contracts,
        Server(contracts, ServerSettings.loopback()) as gateway,
    ):
        yield gateway.target


def _has_model() -> bool:
    """Whether the generation service has a provider, configured or in the variables of the openai package."""
    # The service itself is not asked: importing it takes longer than most commands.
    return is_configured("generation", "providers") or any(
        os.environ.get(name) for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL")
    )


def _register(
    configured: Sequence[JudgeEntry], started: Sequence[JudgeEntry], preferred: str
) -> Sequence[JudgeEntry]:
    """The configured judges, then those started here.

    A configured judge replaces a started one of the same role and name, and a configured default replaces
    the default of the started ones.
    """
    names = {(judge.role, judge.name) for judge in configured}
    decided = {judge.role for judge in configured if judge.default}
    chosen = {preferred} if preferred == WITH_MODEL else {preferred, BUILT_IN}
    return [
        *configured,
        *(
            judge.model_copy(update={"default": judge.name in chosen and judge.role not in decided})
            for judge in started
            if (judge.role, judge.name) not in names
        ),
    ]
