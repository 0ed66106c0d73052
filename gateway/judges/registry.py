"""The configured judges and their channels."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import grpc

from dramaturg.judge.roles import ROLES, JudgeRole, Role, role_table
from dramaturg.service.auth.caller import current
from dramaturg.service.channel import open_channel
from dramaturg.service.settings import ChannelSettings, SettingsError
from gateway.judges.call_gate import CallGate
from gateway.judges.files import JudgeFiles
from gateway.judges.identity import JudgeIdentity, deviation
from gateway.judges.pending_calls import noted
from gateway.settings import JudgeEntry, JudgeTables

logger = logging.getLogger(__name__)

Connect = Callable[[str, ChannelSettings | None], grpc.aio.Channel]
"""Opens a channel to a target, with settings of its own or None."""


@dataclass(frozen=True, eq=False)
class Judge:
    """A registered judge. Equality is identity."""

    role: Role
    """The role that it serves."""
    name: str
    """The registered name."""
    target: str
    """The address."""
    default: bool
    """Whether it serves the role where a request names no judge. True for the only judge of a role."""
    channel: grpc.aio.Channel = field(repr=False)
    """The open channel to the judge."""
    gate: CallGate = field(repr=False)
    """Limits the concurrent calls. Gates are separate, so a hanging judge does not delay others."""
    identity: JudgeIdentity = field(repr=False)
    """Fetches and caches its identity."""
    entry: JudgeEntry = field(repr=False)
    """Its settings."""

    def timeout(self, default: float) -> float:
        """Its timeout in seconds: its own, else the default."""
        return self.entry.timeout_seconds or default

    @property
    def deviation(self) -> str:
        """How the version of its known identity deviates from the expected one. Empty: it does not."""
        identity = self.identity.known
        return "" if identity is None else deviation(self.entry.expect_version, identity)

    @property
    def slots(self) -> AbstractAsyncContextManager[None]:
        """Holds a slot for a call of the current tenant within an ``async with`` block."""
        return noted(self.gate.call(current().tenant), self.role.name, self.name)


class Registry:
    """Finds judges by role and name."""

    def __init__(self, judges: Iterable[Judge], roles: Mapping[str, Role] = ROLES) -> None:
        """Takes the judges in configuration order, and all roles by name."""
        self.replace(judges, roles)

    def replace(self, judges: Iterable[Judge], roles: Mapping[str, Role]) -> None:
        """Replaces all judges and roles. Calls in progress end with the judges that they began with."""
        self.roles = roles
        self._judges = {(judge.role.name, judge.name): judge for judge in judges}
        self._defaults: dict[str, Judge] = {}
        for judge in self._judges.values():
            if judge.default:
                self._defaults.setdefault(judge.role.name, judge)

    def find(self, role: str, name: str) -> Judge | None:
        """The judge registered for a role under a name."""
        return self._judges.get((role, name))

    def default(self, role: str) -> Judge | None:
        """The default judge of a role; None where the role is unbound.

        A role with several judges and no default is unbound: their order selects none.
        """
        return self._defaults.get(role)

    @property
    def configured_roles(self) -> Sequence[JudgeRole]:
        """The roles that the configuration adds to the built-in ones."""
        return [
            role for name, role in self.roles.items() if name not in ROLES and isinstance(role, JudgeRole)
        ]

    def of_role(self, role: str) -> Sequence[Judge]:
        """The judges of a role, in configuration order."""
        return [judge for judge in self._judges.values() if judge.role.name == role]

    def all(self) -> Sequence[Judge]:
        """All judges, by role, then in configuration order."""
        return [judge for role in self.roles for judge in self.of_role(role)]


class JudgePool:
    """Makes the judges of a configuration, which may change.

    A judge whose entry stays keeps its channel, its limit of calls and what is known of it. A channel that no
    judge uses any longer stays open for the calls in progress, and is reused if its target returns.

    Args:
        calls_per_judge: The maximum of concurrent calls of a judge whose entry has none, shared equally by
            tenants.
        connect: Opens a channel to a target.
        identity_ttl: The lifetime of a fetched identity, in seconds.
        identity_timeout: The timeout of a request for an identity, in seconds.
    """

    def __init__(
        self,
        calls_per_judge: int,
        connect: Connect,
        *,
        identity_ttl: float = 60.0,
        identity_timeout: float = 5.0,
    ) -> None:
        self._calls_per_judge = calls_per_judge
        self._connect = connect
        self._identity_ttl = identity_ttl
        self._identity_timeout = identity_timeout
        self._channels: dict[tuple[str, str], grpc.aio.Channel] = {}
        self._made: dict[tuple[str, str, str], Judge] = {}

    def make(
        self, entries: Sequence[JudgeEntry], roles: Mapping[str, Role], *, lenient: bool = False
    ) -> Sequence[Judge]:
        """The judges of the entries.

        Args:
            entries: The entries.
            roles: All roles by name.
            lenient: Whether a judge that cannot be connected to stays as it was, or is left out. By default
                it is an error.

        Raises:
            SettingsError: The files of a connection cannot be used.
        """
        sizes = Counter(entry.role for entry in entries)
        made = []
        for entry in entries:
            default = entry.default or sizes[entry.role] == 1
            try:
                made.append(self._judge(entry, roles[entry.role], default=default))
            except SettingsError as error:
                if not lenient:
                    raise
                logger.error("a judge stays as it was: %s", error)
                if (kept := self._made.get(_key(entry))) is not None:
                    made.append(kept)
        self._made |= {_key(judge.entry): judge for judge in made}
        return made

    def _judge(self, entry: JudgeEntry, role: Role, *, default: bool) -> Judge:
        kept = self._made.get(_key(entry))
        if (
            kept is not None
            and (kept.entry, kept.default) == (entry, default)
            and _unchanged(kept.role, role)
        ):
            return kept
        channel = self._channel(entry)
        gate = identity = None
        if kept is not None and kept.entry.max_concurrent_calls == entry.max_concurrent_calls:
            gate = kept.gate
        if kept is not None and kept.channel is channel and kept.role.contract == role.contract:
            identity = kept.identity
        return Judge(
            role=role,
            name=entry.name,
            target=entry.target,
            default=default,
            channel=channel,
            gate=gate or CallGate(entry.max_concurrent_calls or self._calls_per_judge),
            identity=identity
            or JudgeIdentity(channel, role.contract, ttl=self._identity_ttl, timeout=self._identity_timeout),
            entry=entry,
        )

    def _channel(self, entry: JudgeEntry) -> grpc.aio.Channel:
        own = entry.connection
        key = entry.target, "" if own is None else own.model_dump_json()
        if key not in self._channels:
            try:
                self._channels[key] = self._connect(
                    entry.target, None if own is None else own.channel_settings()
                )
            except SettingsError as error:
                where = "channel" if own is None else f"gateway.judges: {entry.role}={entry.name}: connection"
                raise SettingsError(f"{where}: {error}") from error
        return self._channels[key]

    async def close(self) -> None:
        """Closes all channels."""
        for channel in self._channels.values():
            await channel.close()


def _key(entry: JudgeEntry) -> tuple[str, str, str]:
    return entry.role, entry.name, entry.target


def _unchanged(old: Role, new: Role) -> bool:
    """Whether two roles are equal, definitions of criteria included."""
    return old == new and getattr(old, "definitions", None) == getattr(new, "definitions", None)


def _open(target: str, settings: ChannelSettings | None) -> grpc.aio.Channel:
    return open_channel(target, settings)


@asynccontextmanager
async def open_registry(
    entries: Sequence[JudgeEntry],
    calls_per_judge: int,
    roles: Iterable[JudgeRole] = (),
    connect: Connect = _open,
    files: JudgeFiles | None = None,
    poll_seconds: float = 5,
    identity_ttl: float = 60,
    identity_timeout: float = 5,
) -> AsyncIterator[Registry]:
    """Opens a channel to each target of the configured judges, and closes the channels on exit.

    Args:
        entries: The configured judges.
        calls_per_judge: The maximum of concurrent calls of a judge, shared equally by tenants.
        roles: The roles that the configuration adds to the built-in ones.
        connect: Opens a channel to a target.
        files: Replace all judges and roles when they change.
        poll_seconds: The interval at which the files are checked.
        identity_ttl: The lifetime of a fetched identity, in seconds.
        identity_timeout: The timeout of a request for an identity, in seconds.

    Yields:
        The registry of the judges.

    Raises:
        SettingsError: The files of a judge's connection cannot be used.
    """
    pool = JudgePool(calls_per_judge, connect, identity_ttl=identity_ttl, identity_timeout=identity_timeout)
    table = role_table(roles)
    watcher: asyncio.Task[None] | None = None
    try:
        registry = Registry(pool.make(entries, table), table)

        def replace(tables: JudgeTables) -> None:
            table = role_table(entry.role() for entry in tables.roles)
            registry.replace(pool.make(tables.judges, table, lenient=True), table)

        if files is not None:
            watcher = asyncio.create_task(files.watch(poll_seconds, replace))
        yield registry
    finally:
        if watcher is not None:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        await pool.close()
