"""What the tables have of judges: registrations, identities, certificates, monitors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import sqlalchemy as sa
from google.protobuf.message import DecodeError
from sqlalchemy.dialects import postgresql, sqlite

from dramaturg.api.evaluation.v1.judge_certificate_pb2 import JudgeCertificate
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JudgeRegistration
from dramaturg.api.evaluation.v1.judge_monitor_pb2 import JudgeMonitor
from dramaturg.database.database import Repository, reading, writing
from gateway.runs.records import MonitoredJudge, RegisteredJudge, SeenJudge
from gateway.runs.store.errors import JudgeInUseError, JudgeMissingError
from gateway.runs.store.tables import judge_certificates, judge_monitors, judges, run_judges, runs, sanitize


class RegisteredJudges(Repository):
    """The judges that tenants registered."""

    @reading
    def all(self, connection: sa.Connection) -> Sequence[RegisteredJudge]:
        """The judges that tenants registered, by tenant, role and name."""
        query = sa.select(judges).order_by(judges.c.tenant, judges.c.role, judges.c.name)
        return [_record(row) for row in connection.execute(query)]

    @reading
    def get(self, connection: sa.Connection, tenant: str, role: str, name: str) -> RegisteredJudge | None:
        """A judge that a tenant registered; None if it does not exist."""
        return _find(connection, tenant, role, name)

    @writing
    def add(
        self,
        connection: sa.Connection,
        tenant: str,
        judge: JudgeRegistration,
        most: int,
        needed: Collection[str] = (),
    ) -> bool | None:
        """Adds a judge of a tenant.

        Args:
            connection: That of the transaction.
            tenant: The tenant.
            judge: The judge.
            most: The most judges of the tenant.
            needed: The registered judges of the role that its panel and shadow name.

        Returns:
            Whether it was added; False if the tenant has one of that role and name, None if it has ``most``
            judges.

        Raises:
            JudgeMissingError: A needed judge was removed.
        """
        _lock(connection, tenant)
        if _find(connection, tenant, judge.role, judge.name) is not None:
            return False
        _check_needed(connection, tenant, judge.role, needed)
        mine = sa.select(sa.func.count()).where(judges.c.tenant == sanitize(tenant))
        if connection.execute(mine).scalar_one() >= most:
            return None
        new = judges.insert().values(
            tenant=tenant,
            role=judge.role,
            name=judge.name,
            registration=judge.SerializeToString(),
            revision=1,
        )
        connection.execute(new)
        return True

    @writing
    def replace(
        self,
        connection: sa.Connection,
        tenant: str,
        judge: JudgeRegistration,
        revision: int,
        needed: Collection[str] = (),
    ) -> bool:
        """Replaces a judge of a tenant if it has the revision. Returns whether it was replaced.

        Raises:
            JudgeMissingError: A needed judge (see ``add``) was removed.
        """
        _lock(connection, tenant)
        _check_needed(connection, tenant, judge.role, needed)
        where = _is(tenant, judge.role, judge.name) & (judges.c.revision == revision)
        values = {"registration": judge.SerializeToString(), "revision": revision + 1}
        return connection.execute(judges.update().where(where).values(values)).rowcount > 0

    @writing
    def remove(self, connection: sa.Connection, tenant: str, role: str, name: str) -> bool:
        """Removes a judge of a tenant, its certificate and its monitor. Returns whether it existed.

        Raises:
            JudgeInUseError: A registered panel or shadow of the tenant needs it.
        """
        _lock(connection, tenant)
        query = sa.select(judges).where(judges.c.tenant == sanitize(tenant), judges.c.role == sanitize(role))
        own = [_record(row).judge for row in connection.execute(query.order_by(judges.c.name))]
        panels = [one.name for one in own if name in (member.judge for member in one.panel.members)]
        shadows = [one.name for one in own if one.shadow.of == name]
        if panels or shadows:
            raise JudgeInUseError(panels, shadows)
        for table in (judge_certificates, judge_monitors):
            mine = (table.c.tenant == sanitize(tenant)) & (table.c.role == sanitize(role))
            connection.execute(table.delete().where(mine, table.c.name == sanitize(name)))
        return connection.execute(judges.delete().where(_is(tenant, role, name))).rowcount > 0


def _lock(connection: sa.Connection, tenant: str) -> None:
    """Makes changes of a tenant's judges take turns, so that what one has checked holds until it commits.

    SQLite has one writer at a time.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(sanitize(tenant)))))


def _check_needed(connection: sa.Connection, tenant: str, role: str, needed: Collection[str]) -> None:
    for name in needed:
        if _find(connection, tenant, role, name) is None:
            raise JudgeMissingError(name)


def _find(connection: sa.Connection, tenant: str, role: str, name: str) -> RegisteredJudge | None:
    row = connection.execute(sa.select(judges).where(_is(tenant, role, name))).one_or_none()
    return None if row is None else _record(row)


def _is(tenant: str, role: str, name: str) -> sa.ColumnElement[bool]:
    return (
        (judges.c.tenant == sanitize(tenant))
        & (judges.c.role == sanitize(role))
        & (judges.c.name == sanitize(name))
    )


def _record(row: sa.Row[tuple[object, ...]]) -> RegisteredJudge:
    try:
        judge = JudgeRegistration.FromString(row.registration)
    except DecodeError:  # without an address it is not used, and its tenant can change or remove it
        judge = JudgeRegistration(role=row.role, name=row.name)
    return RegisteredJudge(row.tenant, judge, row.revision)


_KEY = ("run", "role", "judge", "name", "version")
_SEEN_COLUMNS = [run_judges.c[name] for name in ("role", "judge", "name", "version", "seen")]
# Built once: every answer with a run asks.
_OF_RUNS = (
    sa.select(runs.c.id, *_SEEN_COLUMNS)
    .join_from(run_judges, runs)
    .where(runs.c.id.in_(sa.bindparam("wanted", expanding=True)))
    .order_by(run_judges.c.role, run_judges.c.judge, run_judges.c.seen)
)


class SeenJudges(Repository):
    """The identities of the judges that the samples of runs were sent to."""

    @writing
    def note(self, connection: sa.Connection, run_id: str, seen: SeenJudge) -> Sequence[SeenJudge]:
        """Records the identity of a judge that a sample of a run was sent to.

        Returns:
            The other identities of that judge in the run, if this one is new; else none.
        """
        clock = self._database.now(connection)
        number = connection.execute(
            sa.select(runs.c.number).where(runs.c.id == run_id, sa.not_(runs.c.deleted)).with_for_update()
        ).scalar()
        if number is None:
            return ()
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        new = insert(run_judges).values(
            run=number,
            role=sanitize(seen.role),
            judge=sanitize(seen.judge),
            name=sanitize(seen.name),
            version=sanitize(seen.version),
            seen=datetime.fromtimestamp(clock / 1_000_000, UTC),
        )
        # Not the count of rows, which psycopg does not know here.
        added = new.on_conflict_do_nothing(index_elements=_KEY).returning(run_judges.c.run)
        if connection.execute(added).first() is None:
            return ()
        mine = (run_judges.c.role == seen.role) & (run_judges.c.judge == seen.judge)
        found = _select(connection, (run_judges.c.run == number) & mine)
        return [one for one in found if (one.name, one.version) != (seen.name, seen.version)]

    @reading
    def of_runs(self, connection: sa.Connection, run_ids: Sequence[str]) -> Mapping[str, Sequence[SeenJudge]]:
        """The identities of the judges of runs, by the ids of the runs; runs without judges are left out.

        They are ordered by role and judge, then as they were seen.
        """
        found: dict[str, list[SeenJudge]] = {}
        for run_id, *seen in connection.execute(_OF_RUNS, {"wanted": list(run_ids)}):
            found.setdefault(run_id, []).append(SeenJudge(*seen))
        return found


def _select(connection: sa.Connection, where: sa.ColumnElement[bool]) -> Sequence[SeenJudge]:
    of = run_judges.c
    query = sa.select(*_SEEN_COLUMNS).where(where)
    rows = connection.execute(query.order_by(of.role, of.judge, of.seen))
    return [SeenJudge(*row) for row in rows]


class JudgeCertificates(Repository):
    """The certificates of judges, each of a tenant."""

    @writing
    def put(
        self, connection: sa.Connection, tenant: str, role: str, name: str, certificate: JudgeCertificate
    ) -> None:
        """Stores a certificate in place of the tenant's earlier one of that judge."""
        of = judge_certificates.c
        where = (of.tenant == sanitize(tenant)) & (of.role == sanitize(role)) & (of.name == sanitize(name))
        connection.execute(judge_certificates.delete().where(where))
        values = {"tenant": tenant, "role": role, "name": name}
        new = judge_certificates.insert().values(**values, certificate=certificate.SerializeToString())
        connection.execute(new)

    @reading
    def of_tenant(self, connection: sa.Connection, tenant: str) -> Mapping[tuple[str, str], JudgeCertificate]:
        """The certificates of a tenant, by the role and the name of the judge."""
        query = sa.select(judge_certificates).where(judge_certificates.c.tenant == sanitize(tenant))
        rows = connection.execute(query)
        return {(row.role, row.name): JudgeCertificate.FromString(row.certificate) for row in rows}


_MONITORS = judge_monitors.c
_MONITOR_COLUMNS = (
    _MONITORS.tenant,
    _MONITORS.role,
    _MONITORS.name,
    _MONITORS.monitor,
    _MONITORS.identity,
    _MONITORS.attempt,
    _MONITORS.revision,
)


class JudgeMonitors(Repository):
    """The monitors of judges, each of a tenant."""

    @reading
    def all(self, connection: sa.Connection) -> Sequence[MonitoredJudge]:
        """The monitors of all tenants, by tenant, role and name."""
        query = sa.select(*_MONITOR_COLUMNS).order_by(_MONITORS.tenant, _MONITORS.role, _MONITORS.name)
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
        query = sa.select(_MONITORS.base).where(_is_of(of.tenant, of.role, of.name))
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
        where = _is_of(old.tenant, old.role, old.name) & (_MONITORS.revision == old.revision)
        values = _values(replace(new, revision=old.revision + 1))
        return connection.execute(judge_monitors.update().where(where).values(**values)).rowcount > 0

    @writing
    def remove(self, connection: sa.Connection, tenant: str, role: str, name: str) -> None:
        """Removes a monitor, if it exists."""
        _remove(connection, tenant, role, name)


def _remove(connection: sa.Connection, tenant: str, role: str, name: str) -> None:
    connection.execute(judge_monitors.delete().where(_is_of(tenant, role, name)))


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


def _is_of(tenant: str, role: str, name: str) -> sa.ColumnElement[bool]:
    return (
        (_MONITORS.tenant == sanitize(tenant))
        & (_MONITORS.role == sanitize(role))
        & (_MONITORS.name == sanitize(name))
    )
