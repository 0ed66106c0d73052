"""Inserts many rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa


def insert(connection: sa.Connection, table: sa.Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Inserts rows, each with a value for every column of the table, in the columns' order.

    The values go to the driver as they are: SQLAlchemy, which converts each by a function of its own, takes
    longer for them than the database. So texts that a caller chose are to have passed ``tables.word``.
    """
    if rows:
        connection.exec_driver_sql(_statement(table, connection.dialect.paramstyle), list(rows))


@cache
def _statement(table: sa.Table, paramstyle: str) -> str:
    mark = "?" if paramstyle == "qmark" else "%s"
    columns = ", ".join(table.c.keys())
    return f"INSERT INTO {table.name} ({columns}) VALUES ({', '.join([mark] * len(table.c))})"  # noqa: S608
