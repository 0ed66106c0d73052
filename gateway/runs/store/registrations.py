"""The judges that tenants registered, in the tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sqlalchemy as sa
from google.protobuf.message import DecodeError

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JudgeRegistration
from dramaturg.database.database import Repository, reading, writing
from gateway.runs.records import RegisteredJudge
from gateway.runs.store.errors import JudgeInUseError, JudgeMissingError
from gateway.runs.store.tables import judge_certificates, judge_monitors, judges, sanitize


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
