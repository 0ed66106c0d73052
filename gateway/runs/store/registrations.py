"""The judges that tenants registered, in the tables. Each function is part of a transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sqlalchemy as sa
from google.protobuf.message import DecodeError

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JudgeRegistration
from gateway.runs.records import RegisteredJudge
from gateway.runs.store.base import JudgeInUseError, JudgeMissingError
from gateway.runs.store.tables import judges, sanitize


def find_all(connection: sa.Connection) -> Sequence[RegisteredJudge]:
    """See ``RunStore.registered_judges``."""
    query = sa.select(judges).order_by(judges.c.tenant, judges.c.role, judges.c.name)
    return [_record(row) for row in connection.execute(query)]


def find(connection: sa.Connection, tenant: str, role: str, name: str) -> RegisteredJudge | None:
    """See ``RunStore.registered_judge``."""
    row = connection.execute(sa.select(judges).where(_is(tenant, role, name))).one_or_none()
    return None if row is None else _record(row)


def add(
    connection: sa.Connection, tenant: str, judge: JudgeRegistration, most: int, needed: Collection[str]
) -> bool | None:
    """See ``RunStore.register_judge``."""
    _lock(connection, tenant)
    if find(connection, tenant, judge.role, judge.name) is not None:
        return False
    _check_needed(connection, tenant, judge.role, needed)
    mine = sa.select(sa.func.count()).where(judges.c.tenant == sanitize(tenant))
    if connection.execute(mine).scalar_one() >= most:
        return None
    new = judges.insert().values(
        tenant=tenant, role=judge.role, name=judge.name, registration=judge.SerializeToString(), revision=1
    )
    connection.execute(new)
    return True


def replace(
    connection: sa.Connection, tenant: str, judge: JudgeRegistration, revision: int, needed: Collection[str]
) -> bool:
    """See ``RunStore.update_judge``."""
    _lock(connection, tenant)
    _check_needed(connection, tenant, judge.role, needed)
    where = _is(tenant, judge.role, judge.name) & (judges.c.revision == revision)
    values = {"registration": judge.SerializeToString(), "revision": revision + 1}
    return connection.execute(judges.update().where(where).values(values)).rowcount > 0


def remove(connection: sa.Connection, tenant: str, role: str, name: str) -> bool:
    """See ``RunStore.remove_judge``."""
    _lock(connection, tenant)
    query = sa.select(judges).where(judges.c.tenant == sanitize(tenant), judges.c.role == sanitize(role))
    own = [_record(row).judge for row in connection.execute(query.order_by(judges.c.name))]
    panels = [one.name for one in own if name in (member.judge for member in one.panel.members)]
    shadows = [one.name for one in own if one.shadow.of == name]
    if panels or shadows:
        raise JudgeInUseError(panels, shadows)
    return connection.execute(judges.delete().where(_is(tenant, role, name))).rowcount > 0


def _lock(connection: sa.Connection, tenant: str) -> None:
    """Makes changes of a tenant's judges take turns, so that what one has checked holds until it commits.

    SQLite has one writer at a time.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(sanitize(tenant)))))


def _check_needed(connection: sa.Connection, tenant: str, role: str, needed: Collection[str]) -> None:
    for name in needed:
        if find(connection, tenant, role, name) is None:
            raise JudgeMissingError(name)


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
