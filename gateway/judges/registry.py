"""The configured judges, their channels and the limits of their calls."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import cast

import grpc

from dramaturg.judge.roles import ROLES, JudgeRole, Role, role_table
from dramaturg.service.auth.caller import current
from dramaturg.service.channel import open_channel
from dramaturg.service.settings import ChannelSettings, SettingsError
from dramaturg.service.threads import TenantTurns
from gateway.judges.files import JudgeFiles
from gateway.judges.identity import JudgeIdentity, deviation
from gateway.judges.quarantine import Quarantine, QuarantineRules
from gateway.judges.retries import JudgeRetries
from gateway.settings import JudgeEntry, JudgeTables

logger = logging.getLogger(__name__)

Connect = Callable[[str, ChannelSettings | None], grpc.aio.Channel]
"""Opens a channel to a target, with settings of its own or None."""
RETIREMENT_SECONDS = 900.0
"""How long a channel that no judge uses stays open: longer than any evaluation that may still use it."""

_JudgeKey = tuple[str | None, str, str, str]
_ChannelKey = tuple[str, str]


class ShadowQueue:
    """Counts the candidates that wait for a shadow or are in its calls.

    Args:
        size: The most candidates.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = 0

    @contextmanager
    def hold(self, candidates: int) -> Iterator[bool]:
        """Holds places within a ``with`` block. Yields whether there are as many; else none is held."""
        fits = self._held + candidates <= self._size
        held = candidates if fits else 0
        self._held += held
        try:
            yield fits
        finally:
            self._held -= held


@dataclass(frozen=True, eq=False)
class Judge:
    """A registered judge. Equality is identity."""

    role: Role
    """The role that it serves."""
    name: str
    """The registered name."""
    target: str
    """The address. Empty for a panel, which is not called: its members are."""
    default: bool
    """Whether it serves the role where a request names no judge. True for the only judge of a role."""
    channel: grpc.aio.Channel = field(repr=False)
    """The open channel to the judge."""
    turns: TenantTurns = field(repr=False)
    """Limits the concurrent calls. Each judge has its own, so a hanging one does not delay others."""
    identity: JudgeIdentity = field(repr=False)
    """Fetches and caches its identity."""
    entry: JudgeEntry = field(repr=False)
    """Its settings."""
    quarantine: Quarantine = field(default_factory=Quarantine, repr=False)
    """Whether it is excluded for breaches of its contract."""
    retries: JudgeRetries = field(default_factory=lambda: JudgeRetries(None), repr=False)
    """Whether its failed calls are repeated."""
    shadow_queue: ShadowQueue | None = field(default=None, repr=False)
    """The candidates that wait for it, if it is a shadow."""
    tenant: str | None = None
    """The tenant that registered it. None: it is configured, and all tenants see it."""

    def timeout(self, default: float) -> float:
        """Its timeout in seconds: its own, else the default."""
        return self.entry.timeout_seconds or default

    @property
    def deviation(self) -> str:
        """How the version of its known identity deviates from the expected one. Empty: it does not."""
        identity = self.identity.known
        return "" if identity is None else deviation(self.entry.expect_version, identity)


class Registry:
    """Finds judges by role and name: the configured ones, and those that the current tenant registered.

    Args:
        pool: Makes the judges.
    """

    def __init__(self, pool: JudgePool) -> None:
        self._pool = pool
        self.roles: Mapping[str, Role] = ROLES
        self.criteria = _criteria(ROLES)
        """The criteria of all roles, built-in and configured."""
        self._judges: dict[tuple[str, str], Judge] = {}
        self._defaults: dict[str, Judge] = {}
        self._entries: Sequence[tuple[str, JudgeEntry]] = ()
        self._unreadable: Mapping[tuple[str, str, str], str] = {}
        self._registered: dict[str, dict[tuple[str, str], Judge]] = {}
        self.unusable: Mapping[tuple[str, str, str], str] = {}
        """The faults of the registered judges that are not used, by tenant, role and name."""

    def configure(
        self, entries: Sequence[JudgeEntry], roles: Mapping[str, Role], *, lenient: bool = False
    ) -> None:
        """Replaces the roles and the configured judges. Calls in progress end with their judges.

        Args:
            entries: The judges in configuration order.
            roles: All roles by name.
            lenient: See ``JudgePool.make``.

        Raises:
            SettingsError: The files of a connection cannot be used.
        """
        judges = self._pool.make(entries, roles, lenient=lenient)
        self.roles = roles
        self.criteria = _criteria(roles)
        self._judges = {(judge.role.name, judge.name): judge for judge in judges}
        self._defaults = {}
        for judge in self._judges.values():
            if judge.default:
                self._defaults.setdefault(judge.role.name, judge)
        self.register(self._entries, self._unreadable)

    def register(
        self, entries: Sequence[tuple[str, JudgeEntry]], unreadable: Mapping[tuple[str, str, str], str]
    ) -> None:
        """Replaces the judges that tenants registered. A judge of the configuration has its name to itself.

        Args:
            entries: Tenants and their judges.
            unreadable: The faults of registrations without valid settings, by tenant, role and name.
        """
        self._entries, self._unreadable = entries, unreadable
        registered: dict[str, dict[tuple[str, str], Judge]] = {}
        unusable = dict(unreadable)
        for tenant, entry in entries:
            key = entry.role, entry.name
            if key in self._judges:
                unusable[tenant, *key] = "the configuration of the gateway has a judge of that role and name"
                continue
            try:
                registered.setdefault(tenant, {})[key] = self._pool.make_registered(tenant, entry, self.roles)
            except SettingsError as error:
                unusable[tenant, *key] = str(error)
            except Exception as error:  # no other judge fails for it
                unusable[tenant, *key] = f"it cannot be made ({type(error).__name__}: {error})"
        for (tenant, role, name), fault in unusable.items():
            if self.unusable.get((tenant, role, name)) != fault:
                logger.warning("a registered judge is not used: %s=%s: %s", role, name, fault)
        self._registered, self.unusable = registered, unusable
        self._pool.retire(self.every())

    def every(self) -> Sequence[Judge]:
        """The judges of the configuration and of all tenants."""
        own = [judge for judges in self._registered.values() for judge in judges.values()]
        return [*self._judges.values(), *own]

    def is_configured(self, role: str, name: str) -> bool:
        """Whether the configuration has a judge of a role and name."""
        return (role, name) in self._judges

    def find(self, role: str, name: str) -> Judge | None:
        """The judge of a role and name that the current tenant sees."""
        return self._judges.get((role, name)) or self._own.get((role, name))

    def prompt_text(self, digest: str) -> str:
        """The text of a prompt of a judge by its SHA-256. Empty: no judge has stated it."""
        texts = (judge.identity.prompt_texts.get(digest, "") for judge in self.all())
        return next(filter(None, texts), "")

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
        """The judges of a role that the current tenant sees, in configuration order, then its own."""
        return [judge for judge in (*self._judges.values(), *self._own.values()) if judge.role.name == role]

    def all(self) -> Sequence[Judge]:
        """All judges that the current tenant sees, by role, then in the order of ``of_role``."""
        return [judge for role in self.roles for judge in self.of_role(role)]

    @property
    def _own(self) -> Mapping[tuple[str, str], Judge]:
        """The judges that the current tenant registered."""
        return self._registered.get(current().tenant, {})


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
        quarantine: When judges are excluded for breaches of their contract.
    """

    def __init__(
        self,
        calls_per_judge: int,
        connect: Connect,
        *,
        identity_ttl: float = 60.0,
        identity_timeout: float = 5.0,
        quarantine: QuarantineRules | None = None,
    ) -> None:
        self._calls_per_judge = calls_per_judge
        self._connect = connect
        self._identity_ttl = identity_ttl
        self._identity_timeout = identity_timeout
        self._quarantine = quarantine
        self._channels: dict[_ChannelKey, grpc.aio.Channel] = {}
        self._made: dict[_JudgeKey, Judge] = {}
        self._unused: dict[_ChannelKey, float] = {}
        """When channels were last used, for those that no judge uses."""
        self._closing: set[asyncio.Task[None]] = set()

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
        sizes = Counter(entry.role for entry in entries if entry.may_be_only)
        defaults = {entry.role for entry in entries if entry.default}
        made = []
        for entry in entries:
            only = entry.may_be_only and sizes[entry.role] == 1 and entry.role not in defaults
            default = entry.default or only
            try:
                made.append(self._judge(entry, roles[entry.role], default=default))
            except SettingsError as error:
                if not lenient:
                    raise
                logger.error("a judge stays as it was: %s", error)
                if (kept := self._made.get(_key(entry))) is not None:
                    made.append(kept)
        return made

    def make_registered(self, tenant: str, entry: JudgeEntry, roles: Mapping[str, Role]) -> Judge:
        """The judge that a tenant registered.

        Raises:
            SettingsError: Its role is absent, or its files cannot be used.
        """
        role = roles.get(entry.role)
        if role is None:
            raise SettingsError(f"there is no role {entry.role!r}")
        return self._judge(entry, role, default=False, tenant=tenant)

    def retire(self, used: Iterable[Judge]) -> None:
        """Forgets the judges that are not used, and closes their channels after ``RETIREMENT_SECONDS``."""
        kept = set(used)
        self._made = {key: judge for key, judge in self._made.items() if judge in kept}
        open_keys = {_channel_key(judge.entry) for judge in kept}
        now = time.monotonic()
        self._unused = {key: self._unused.get(key, now) for key in self._channels if key not in open_keys}
        for key, since in list(self._unused.items()):
            if now - since >= RETIREMENT_SECONDS:
                del self._unused[key]
                task = asyncio.get_running_loop().create_task(self._channels.pop(key).close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    def _judge(self, entry: JudgeEntry, role: Role, *, default: bool, tenant: str | None = None) -> Judge:
        key = _key(entry, tenant)
        kept = self._made.get(key)
        if (
            kept is not None
            and (kept.entry, kept.default) == (entry, default)
            and _unchanged(kept.role, role)
        ):
            return kept
        channel = self._channel(entry)
        calls = entry.max_concurrent_calls or self._calls_per_judge
        turns = identity = None
        if kept is not None and kept.entry.max_concurrent_calls == entry.max_concurrent_calls:
            turns = kept.turns
        if kept is not None and kept.channel is channel and kept.role.contract == role.contract:
            identity = kept.identity
        judge = self._made[key] = Judge(
            role=role,
            name=entry.name,
            target=entry.target,
            default=default,
            channel=channel,
            turns=turns or TenantTurns(calls, calls),
            identity=identity
            or JudgeIdentity(channel, role.contract, ttl=self._identity_ttl, timeout=self._identity_timeout),
            entry=entry,
            quarantine=kept.quarantine
            if kept is not None and kept.entry == entry
            else Quarantine(f"{entry.role}={entry.name}", self._quarantine),
            retries=JudgeRetries(entry.retry),
            shadow_queue=None if entry.shadow is None else ShadowQueue(entry.shadow.queue_size),
            tenant=tenant,
        )
        return judge

    def _channel(self, entry: JudgeEntry) -> grpc.aio.Channel:
        if entry.panel is not None:
            return cast("grpc.aio.Channel", None)  # a panel is not called
        own, key = entry.connection, _channel_key(entry)
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
        await asyncio.gather(*self._closing, *(channel.close() for channel in self._channels.values()))


def _criteria(roles: Mapping[str, Role]) -> frozenset[str]:
    judging = (role for role in roles.values() if isinstance(role, JudgeRole))
    return frozenset(criterion for role in judging for criterion in role.criteria)


def _key(entry: JudgeEntry, tenant: str | None = None) -> _JudgeKey:
    return tenant, entry.role, entry.name, entry.target


def _channel_key(entry: JudgeEntry) -> _ChannelKey:
    return entry.target, "" if entry.connection is None else entry.connection.model_dump_json()


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
    quarantine: QuarantineRules | None = None,
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
        quarantine: When judges are excluded for breaches of their contract.

    Yields:
        The registry of the judges.

    Raises:
        SettingsError: The files of a judge's connection cannot be used.
    """
    pool = JudgePool(
        calls_per_judge,
        connect,
        identity_ttl=identity_ttl,
        identity_timeout=identity_timeout,
        quarantine=quarantine,
    )
    table = role_table(roles)
    watcher: asyncio.Task[None] | None = None
    try:
        registry = Registry(pool)
        registry.configure(entries, table)

        def replace(tables: JudgeTables) -> None:
            table = role_table(entry.role() for entry in tables.roles)
            registry.configure(tables.judges, table, lenient=True)

        if files is not None:
            watcher = asyncio.create_task(files.watch(poll_seconds, replace))
        yield registry
    finally:
        if watcher is not None:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        await pool.close()
