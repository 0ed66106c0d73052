"""What tenants spend by day, in the tables.

An amount counts on the day (UTC, by the clock of the store) on which it is added, whenever its run was
created, and stays when the run is deleted.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dramaturg.database.database import Repository, reading, writing
from gateway.runs.records import Spending
from gateway.runs.store.tables import run_spending, sanitize

_DAY_MICROSECONDS = 24 * 3600 * 1_000_000


def add(connection: sa.Connection, clock: int, tenant: str, spent: Spending) -> None:
    """Adds to what a tenant spent on the day of ``clock``, in a transaction."""
    if spent == Spending():
        return
    day = clock // _DAY_MICROSECONDS
    row = (run_spending.c.tenant == tenant) & (run_spending.c.day == day)
    added = run_spending.update().where(row)
    values = {"tokens": run_spending.c.tokens + spent.tokens, "usd": run_spending.c.usd + spent.usd}
    if connection.execute(added.values(values)).rowcount:
        return
    # Another gateway may insert the same row at this moment.
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    new = insert(run_spending).values(tenant=sanitize(tenant), day=day, tokens=spent.tokens, usd=spent.usd)
    connection.execute(new.on_conflict_do_update(index_elements=["tenant", "day"], set_=values))


class TenantSpending(Repository):
    """What each tenant spent on each day."""

    @writing
    def add(self, connection: sa.Connection, tenant: str, spent: Spending) -> None:
        """Adds an amount outside of runs to what a tenant spent today (UTC, by the clock of the store)."""
        add(connection, self._database.now(connection), tenant, spent)

    @reading
    def today(self, connection: sa.Connection, tenant: str) -> Spending:
        """What a tenant spent today through runs and outside of them."""
        clock = self._database.now(connection)
        query = sa.select(run_spending.c.tokens, run_spending.c.usd).where(
            run_spending.c.tenant == tenant, run_spending.c.day == clock // _DAY_MICROSECONDS
        )
        row = connection.execute(query).one_or_none()
        return Spending() if row is None else Spending(row.tokens, row.usd)
