"""The configured judges and their channels."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import grpc

from dramaturg.judge.roles import ROLES, JudgeRole, Role, role_table
from dramaturg.service.auth.caller import current
from dramaturg.service.channel import open_channel
from gateway.judges.call_gate import CallGate
from gateway.judges.files import JudgeFiles
from gateway.judges.pending_calls import noted
from gateway.settings import JudgeEntry, JudgeTables


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

    A judge that stays at its target keeps its channel and its limit of calls. A channel whose target is no
    longer configured stays open for the calls in progress, and is reused if the target returns.

    Args:
        calls_per_judge: The maximum of concurrent calls of a judge, shared equally by tenants.
        connect: Opens a channel to a target.
    """

    def __init__(self, calls_per_judge: int, connect: Callable[[str], grpc.aio.Channel]) -> None:
        self._calls_per_judge = calls_per_judge
        self._connect = connect
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._gates: dict[tuple[str, str, str], CallGate] = {}

    def make(self, entries: Sequence[JudgeEntry], roles: Mapping[str, Role]) -> Sequence[Judge]:
        """The judges of the entries."""
        sizes = Counter(entry.role for entry in entries)
        made = []
        for entry in entries:
            if entry.target not in self._channels:
                self._channels[entry.target] = self._connect(entry.target)
            key = entry.role, entry.name, entry.target
            if key not in self._gates:
                self._gates[key] = CallGate(self._calls_per_judge)
            made.append(
                Judge(
                    role=roles[entry.role],
                    name=entry.name,
                    target=entry.target,
                    default=entry.default or sizes[entry.role] == 1,
                    channel=self._channels[entry.target],
                    gate=self._gates[key],
                )
            )
        return made

    async def close(self) -> None:
        """Closes all channels."""
        for channel in self._channels.values():
            await channel.close()


@asynccontextmanager
async def open_registry(
    entries: Sequence[JudgeEntry],
    calls_per_judge: int,
    roles: Iterable[JudgeRole] = (),
    connect: Callable[[str], grpc.aio.Channel] = open_channel,
    files: JudgeFiles | None = None,
    poll_seconds: float = 5,
) -> AsyncIterator[Registry]:
    """Opens a channel to each target of the configured judges, and closes the channels on exit.

    Args:
        entries: The configured judges.
        calls_per_judge: The maximum of concurrent calls of a judge, shared equally by tenants.
        roles: The roles that the configuration adds to the built-in ones.
        connect: Opens a channel to a target.
        files: Replace all judges and roles when they change.
        poll_seconds: The interval at which the files are checked.

    Yields:
        The registry of the judges.
    """
    pool = JudgePool(calls_per_judge, connect)
    table = role_table(roles)
    watcher: asyncio.Task[None] | None = None
    try:
        registry = Registry(pool.make(entries, table), table)

        def replace(tables: JudgeTables) -> None:
            table = role_table(entry.role() for entry in tables.roles)
            registry.replace(pool.make(tables.judges, table), table)

        if files is not None:
            watcher = asyncio.create_task(files.watch(poll_seconds, replace))
        yield registry
    finally:
        if watcher is not None:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        await pool.close()
