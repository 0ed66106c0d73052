"""Leases: a process that renews its own counts as alive, by the clock of the database that all share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dramaturg.database.database import Database, Repository, reading

_RETENTION_MICROSECONDS = 7 * 24 * 3600 * 1_000_000


class Leases(Repository):
    """The leases of a table, one for each process.

    Every method may take effect twice without harm.

    Args:
        database: The database of the table.
        table: Has the columns ``id`` (text, the key) and ``expires`` (microseconds since 1970 by the clock of
            the database), and any others, which describe a process and never change.
    """

    def __init__(self, database: Database, table: sa.Table) -> None:
        super().__init__(database)
        self._table = table
        new = (sqlite.insert if database.is_sqlite else postgresql.insert)(table)
        self._renew = new.on_conflict_do_update(index_elements=["id"], set_={"expires": new.excluded.expires})

    def renew(self, lease_id: str, seconds: float, **about: Any) -> None:
        """Begins a lease, or extends it to ``seconds`` from now. Removes those that expired a week ago.

        Args:
            lease_id: The id of the process.
            seconds: The duration.
            about: The values of the other columns.
        """

        def work(connection: sa.Connection) -> None:
            now = self._database.now(connection)
            expires = now + int(seconds * 1_000_000)
            connection.execute(self._renew, {"id": lease_id, "expires": expires, **about})
            old = self._table.c.expires < now - _RETENTION_MICROSECONDS
            connection.execute(self._table.delete().where(old))

        self._database.write_repeatable(work)

    def drop(self, *lease_ids: str) -> None:
        """Ends leases."""
        ended = self._table.delete().where(self._table.c.id.in_(lease_ids))
        self._database.write_repeatable(lambda connection: connection.execute(ended))

    @reading
    def live(self, connection: sa.Connection) -> Sequence[str]:
        """The ids of the leases that have not expired, sorted."""
        columns = self._table.c
        query = sa.select(columns.id).where(columns.expires > self._database.now(connection))
        return connection.execute(query.order_by(columns.id)).scalars().all()

    def remaining(self, connection: sa.Connection) -> Sequence[tuple[sa.Row[*tuple[Any, ...]], float]]:
        """All rows, each with the seconds until it expires, negative afterwards. Part of a transaction."""
        now = self._database.now(connection)
        return [(row, (row.expires - now) / 1e6) for row in connection.execute(sa.select(self._table))]
