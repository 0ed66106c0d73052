"""The whole platform in one process: every service on a loopback port of its own, and the gateway."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from dramaturg.judge.roles import ROLES
from dramaturg.service.contract import Contract
from dramaturg.service.installed import backends, find_app, service_names, settings_type
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings, Settings
from gateway.app import App as Gateway
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings, JudgeEntry

WITH_MODEL = "llm"
"""The backend, and the registered name, of judges that ask a model."""
WITHOUT_MODEL = "offline"
"""The backend, and the registered name, of judges that ask none."""
BUILT_IN = "built-in"
"""The registered name of a service that needs no model and works in one way."""
NO_MODEL = (
    "No model is configured, so the offline judges serve: they judge what rules and embeddings can, and "
    "abstain from the rest. Set OPENAI_BASE_URL or OPENAI_API_KEY, and MODEL, or name a provider in the file "
    "that DRAMATURG_CONFIG names."
)

_TARGET = "_target"

SomeSettings = TypeVar("SomeSettings", bound=Settings)


@dataclass(frozen=True)
class Running:
    """A service that runs in this process."""

    name: str
    """The service's name."""
    backend: str
    """How it works, where it can work in several ways."""
    target: str
    """Where it is reached."""


@dataclass(frozen=True)
class Overview:
    """What runs."""

    services: Sequence[Running]
    """The services beside the gateway, in the order started."""
    notice: str
    """What the user should know. Empty: nothing."""


class Platform:
    """All services and the gateway as one service; its contracts are the gateway's.

    A service's settings say what it needs: a field ``generation_target`` that is not configured gets the
    address of the generation service, which is started for it. Every agent is started with each of its
    backends and registered under the backend's name.

    Args:
        roles: The roles to serve; what their services need is started with them. Empty: all.
        announce: Is told what runs, before the gateway takes calls.
        runs: How it works on runs. Absent: as configured.
    """

    name = "platform"

    def __init__(
        self,
        roles: Sequence[str] = (),
        announce: Callable[[Overview], None] | None = None,
        runs: RunsSettings | None = None,
    ) -> None:
        self._roles = [ROLES[name] for name in roles or ROLES]
        self._announce = announce
        self._runs = runs

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """Starts the services, yields the gateway's contracts, and stops the services, last started first."""
        async with AsyncExitStack() as stack:
            launcher = _Launcher(stack)
            judges: list[JudgeEntry] = []
            installed = service_names()
            for role in self._roles:
                for service in role.players:
                    if service in installed:
                        judges += await launcher.judges(role.name, service)
            settings = await launcher.settings(GatewaySettings, {})
            has_model = _has_model(await launcher.settings(settings_type(find_app("generation")), {}))
            wired = _register(settings.judges, judges, WITH_MODEL if has_model else WITHOUT_MODEL)
            if self._announce is not None:
                self._announce(Overview(launcher.running, "" if has_model else NO_MODEL))
            # Not copied: a copy would not be checked.
            values = {name: getattr(settings, name) for name in settings.model_fields_set}
            gateway = Gateway(GatewaySettings(**{**values, "judges": wired}), self._runs)
            yield await stack.enter_async_context(gateway.open())


@asynccontextmanager
async def local_platform(
    announce: Callable[[Overview], None] | None = None, roles: Sequence[str] = ()
) -> AsyncIterator[str]:
    """Runs what an evaluation needs in this process, and yields the gateway's address.

    It ends with the command that needs it, so it leaves the user's runs alone.

    Args:
        announce: Is told what runs.
        roles: The roles that the evaluation asks. Empty: all.
    """
    async with (
        Platform(roles, announce, RunsSettings(enabled=False)).open() as contracts,
        Server(contracts, ServerSettings.loopback()) as gateway,
    ):
        yield gateway.target


class _Launcher:
    """Starts services, each one with what it needs started before it."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.running: list[Running] = []
        self._stack = stack
        self._targets: dict[str, str] = {}

    async def target(self, name: str) -> str:
        """Where a service is reached; starts it when it is first asked for."""
        if name not in self._targets:
            self._targets[name] = await self._start(name)
        return self._targets[name]

    async def judges(self, role: str, service: str) -> Sequence[JudgeEntry]:
        """The judges of a role that a service offers: one for each of its backends."""
        settings = settings_type(find_app(service))
        choices = backends(settings)
        if not choices:
            asks_model = service == "generation" or f"generation{_TARGET}" in settings.model_fields
            name = WITH_MODEL if asks_model else BUILT_IN
            return [JudgeEntry(role=role, name=name, target=await self.target(service))]
        return [
            JudgeEntry(role=role, name=choice, target=await self._start(service, backend=choice))
            for choice in choices
        ]

    async def settings(self, kind: type[SomeSettings], given: Mapping[str, Any]) -> SomeSettings:
        """A service's settings, with the addresses of what it needs filled in where none is configured."""
        configured = kind(**given).model_fields_set
        targets = {
            field: await self.target(field.removesuffix(_TARGET).replace("_", "-"))
            for field in kind.model_fields
            if field.endswith(_TARGET) and field not in configured
        }
        return kind(**given, **targets)

    async def _start(self, name: str, **given: str) -> str:
        app = find_app(name)
        settings = await self.settings(settings_type(app), given)
        contracts = await self._stack.enter_async_context(app(settings=settings).open())
        server = await self._stack.enter_async_context(Server(contracts, ServerSettings.loopback()))
        self.running.append(Running(name, given.get("backend", ""), server.target))
        return server.target


def _has_model(generation: Settings) -> bool:
    """Whether the generation service has a provider: one that is configured, or the environment's."""
    configured = bool(getattr(generation, "providers", None))
    return configured or any(os.environ.get(name) for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"))


def _register(
    configured: Sequence[JudgeEntry], started: Sequence[JudgeEntry], preferred: str
) -> Sequence[JudgeEntry]:
    """The judges that are configured, then those started here.

    A configured judge takes the place of a started one of its name, and a configured default that of ours.
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
