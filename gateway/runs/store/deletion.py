"""Deletes runs in bounded transactions. Each function is part of one."""

from __future__ import annotations

import sqlalchemy as sa

from gateway.runs.store import runs
from gateway.runs.store.tables import PARTS
from gateway.runs.store.tables import runs as run_table

_PIECE = 1000
"""The most samples whose rows of one table go in one transaction."""


def hide(connection: sa.Connection, run_id: str) -> None:
    """Takes a run out of everybody's sight; its request id may be used again."""
    row = runs.lock(connection, run_id)
    if row is not None:
        hidden = run_table.update().where(run_table.c.number == row.number)
        connection.execute(hidden.values(deleted=True, request_id=None))


def delete_piece(connection: sa.Connection) -> bool:
    """Deletes some rows of a hidden run, whoever hid it, so that the next deletion ends one that was cut off.

    Returns:
        Whether anything may be left.
    """
    query = sa.select(run_table.c.number).where(run_table.c.deleted).limit(1)
    number = connection.execute(query.with_for_update(skip_locked=True)).scalar_one_or_none()
    if number is None:
        return False
    for table in PARTS:
        mine = table.c.run == number
        if "sample" not in table.c:
            connection.execute(table.delete().where(mine))
            continue
        first = connection.execute(sa.select(sa.func.min(table.c.sample)).where(mine)).scalar_one()
        if first is not None:
            connection.execute(table.delete().where(mine, table.c.sample < first + _PIECE))
            return True
    connection.execute(run_table.delete().where(run_table.c.number == number))
    return True
