"""The configured judges and their channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import grpc

from dramaturg.judge.roles import ROLES, JudgeRole, Role, role_table
from dramaturg.service.auth.caller import current
from dramaturg.service.channel import open_channel
from gateway.judges.call_gate import CallGate
from gateway.judges.pending_calls import noted
from gateway.settings import JudgeEntry


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


@asynccontextmanager
async def open_registry(
    entries: Sequence[JudgeEntry],
    calls_per_judge: int,
    roles: Iterable[JudgeRole] = (),
    connect: Callable[[str], grpc.aio.Channel] = open_channel,
) -> AsyncIterator[Registry]:
    """Opens a channel to each target of the configured judges, and closes the channels on exit.

    Args:
        entries: The configured judges.
        calls_per_judge: The maximum of concurrent calls of a judge, shared equally by tenants.
        roles: The roles that the configuration adds to the built-in ones.
        connect: Opens a channel to a target.

    Yields:
        The registry of the judges.
    """
    channels = {target: connect(target) for target in {entry.target for entry in entries}}
    sizes = Counter(entry.role for entry in entries)
    table = role_table(roles)
    try:
        judges = [
            Judge(
                role=table[entry.role],
                name=entry.name,
                target=entry.target,
                default=entry.default or sizes[entry.role] == 1,
                channel=channels[entry.target],
                gate=CallGate(calls_per_judge),
            )
            for entry in entries
        ]
        yield Registry(judges, table)
    finally:
        for channel in channels.values():
            await channel.close()
