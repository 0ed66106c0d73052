"""The leases of gateways in the tables. Each function is part of somebody's transaction.

Times are the store's, so that gateways whose clocks differ agree on who lives.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from gateway.runs.store.tables import run_executors

_FORGOTTEN_AFTER_MICROSECONDS = 7 * 24 * 3600 * 1_000_000


def renew(connection: sa.Connection, clock: int, executor: str, seconds: float) -> None:
    """See ``RunStore.renew_lease``."""
    expires = clock + int(seconds * 1_000_000)
    mine = run_executors.c.id == executor
    if connection.execute(run_executors.update().where(mine).values(expires=expires)).rowcount == 0:
        old = run_executors.c.expires < clock - _FORGOTTEN_AFTER_MICROSECONDS
        connection.execute(run_executors.delete().where(old))
        connection.execute(run_executors.insert().values(id=executor, expires=expires))


def drop(connection: sa.Connection, executor: str) -> None:
    """See ``RunStore.drop_lease``."""
    connection.execute(run_executors.delete().where(run_executors.c.id == executor))


def live(connection: sa.Connection, clock: int) -> Sequence[str]:
    """See ``RunStore.live_executors``."""
    query = sa.select(run_executors.c.id).where(run_executors.c.expires > clock).order_by(run_executors.c.id)
    return connection.execute(query).scalars().all()
