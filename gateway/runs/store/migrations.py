"""Brings a store to the version of its tables that this program knows, forward only."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa

from gateway.runs.store.base import StoreError
from gateway.runs.store.database import Database
from gateway.runs.store.tables import SCHEMA_VERSION, metadata, runs

Step = Callable[[sa.Connection], None]


def _add_trouble(connection: sa.Connection) -> None:
    kind = runs.c.trouble.type.compile(connection.dialect)
    connection.execute(sa.text(f"ALTER TABLE runs ADD COLUMN trouble {kind}"))


STEPS: Mapping[int, Step] = {2: _add_trouble}
"""The change of the tables by which a store gets to each version above 1. An empty database gets the newest
tables at once."""

_versions = sa.Table(
    "run_schema",
    sa.MetaData(),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
)

# Any number that nobody else uses: replicas that start at once take turns by it.
_ADVISORY_LOCK = 0x6472616D61


def migrate(
    database: Database,
    *,
    tables: sa.MetaData = metadata,
    steps: Mapping[int, Step] = STEPS,
    target: int = SCHEMA_VERSION,
) -> None:
    """Creates the tables, or changes older ones step by step, each step in a transaction of its own.

    Raises:
        StoreError: a newer program wrote the store, or it cannot be used.
    """
    while (
        database.write(lambda connection: _advance(connection, database.name, tables, steps, target)) < target
    ):
        pass


def _advance(
    connection: sa.Connection, name: str, tables: sa.MetaData, steps: Mapping[int, Step], target: int
) -> int:
    """Goes one version further, where there is one; returns the version it got to."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    _versions.create(connection, checkfirst=True)
    version = connection.execute(sa.select(sa.func.max(_versions.c.version))).scalar_one()
    if version is None:
        tables.create_all(connection)
        reached = target
    elif version > target:
        raise StoreError(
            f"the store of runs {name} has version {version}, and this program knows {target}: "
            "a newer dramaturg wrote it"
        )
    elif version == target:
        return target
    else:
        reached = int(version) + 1
        steps[reached](connection)
    connection.execute(_versions.insert().values(version=reached))
    return reached
