"""The monitors of judges, in the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from dramaturg.api.evaluation.v1.judge_monitor_pb2 import JudgeMonitor
from dramaturg.database.database import Repository, reading, writing
from gateway.runs.records import MonitoredJudge
from gateway.runs.store.tables import judge_monitors, sanitize

_OF = judge_monitors.c
_COLUMNS = (_OF.tenant, _OF.role, _OF.name, _OF.monitor, _OF.identity, _OF.attempt, _OF.revision)


class JudgeMonitors(Repository):
    """The monitors of judges, each of a tenant."""

    @reading
    def all(self, connection: sa.Connection) -> Sequence[MonitoredJudge]:
        """The monitors of all tenants, by tenant, role and name."""
        query = sa.select(*_COLUMNS).order_by(_OF.tenant, _OF.role, _OF.name)
        return [
            MonitoredJudge(
                row.tenant,
                row.role,
                row.name,
                JudgeMonitor.FromString(row.monitor),
                row.identity,
                row.attempt,
                row.revision,
            )
            for row in connection.execute(query)
        ]

    @reading
    def base(self, connection: sa.Connection, of: MonitoredJudge) -> bytes:
        """The answers that checks compare with. Empty: the monitor is gone."""
        query = sa.select(_OF.base).where(_is(of.tenant, of.role, of.name))
        return connection.execute(query).scalar_one_or_none() or b""

    @writing
    def put(self, connection: sa.Connection, new: MonitoredJudge, base: bytes) -> None:
        """Stores a monitor in place of the tenant's earlier one of that judge."""
        _remove(connection, new.tenant, new.role, new.name)
        # A higher number than an earlier one had: what was read of that one replaces nothing of this one.
        values = _values(replace(new, revision=self._database.now(connection)))
        connection.execute(judge_monitors.insert().values(**values, base=base))

    @writing
    def replace(self, connection: sa.Connection, old: MonitoredJudge, new: MonitoredJudge) -> bool:
        """Changes a monitor that is as it was read. Returns whether it was changed; its base stays."""
        where = _is(old.tenant, old.role, old.name) & (_OF.revision == old.revision)
        values = _values(replace(new, revision=old.revision + 1))
        return connection.execute(judge_monitors.update().where(where).values(**values)).rowcount > 0

    @writing
    def remove(self, connection: sa.Connection, tenant: str, role: str, name: str) -> None:
        """Removes a monitor, if it exists."""
        _remove(connection, tenant, role, name)


def _remove(connection: sa.Connection, tenant: str, role: str, name: str) -> None:
    connection.execute(judge_monitors.delete().where(_is(tenant, role, name)))


def _values(monitored: MonitoredJudge) -> dict[str, object]:
    return {
        "tenant": monitored.tenant,
        "role": monitored.role,
        "name": monitored.name,
        "monitor": monitored.monitor.SerializeToString(),
        "identity": monitored.identity,
        "attempt": monitored.attempt,
        "revision": monitored.revision,
    }


def _is(tenant: str, role: str, name: str) -> sa.ColumnElement[bool]:
    return (_OF.tenant == sanitize(tenant)) & (_OF.role == sanitize(role)) & (_OF.name == sanitize(name))
