"""The leases of gateways in the tables. Each function is part of a transaction.

Times are those of the store, so that gateways whose clocks differ agree on the live ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from gateway.runs.store.tables import run_executors

_RETENTION_MICROSECONDS = 7 * 24 * 3600 * 1_000_000


def renew(connection: sa.Connection, clock: int, executor_id: str, seconds: float) -> None:
    """See ``RunStore.renew_lease``."""
    expires = clock + int(seconds * 1_000_000)
    own = run_executors.c.id == executor_id
    if connection.execute(run_executors.update().where(own).values(expires=expires)).rowcount == 0:
        old = run_executors.c.expires < clock - _RETENTION_MICROSECONDS
        connection.execute(run_executors.delete().where(old))
        connection.execute(run_executors.insert().values(id=executor_id, expires=expires))


def drop(connection: sa.Connection, executor_id: str) -> None:
    """See ``RunStore.drop_lease``."""
    connection.execute(run_executors.delete().where(run_executors.c.id == executor_id))


def live(connection: sa.Connection, clock: int) -> Sequence[str]:
    """See ``RunStore.live_executors``."""
    query = sa.select(run_executors.c.id).where(run_executors.c.expires > clock).order_by(run_executors.c.id)
    return connection.execute(query).scalars().all()
