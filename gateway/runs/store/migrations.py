"""Upgrades the tables of a store to the version of this program. There are no downgrades."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa

from dramaturg.database.database import Database
from dramaturg.database.errors import StoreError
from dramaturg.database.tables import metadata, run_writers
from gateway.runs.store.tables import (
    DELETED_INDEX,
    SCHEMA_VERSION,
    dataset_chunks,
    datasets,
    item_labels,
    judges,
    label_items,
    label_sets,
    run_judges,
    run_spending,
)

Step = Callable[[sa.Connection], None]


def _add_incident(connection: sa.Connection) -> None:
    kind = sa.LargeBinary().compile(connection.dialect)
    connection.execute(sa.text(f"ALTER TABLE runs ADD COLUMN trouble {kind}"))


def _add_spending(connection: sa.Connection) -> None:
    for table, old, new in (
        ("runs", "trouble", "incident"),
        ("runs", "pace", "throughput"),
        ("run_samples", "tries", "crashes"),
    ):
        connection.execute(sa.text(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}"))
    run_spending.create(connection)
    DELETED_INDEX.create(connection)


def _add_preparations(connection: sa.Connection) -> None:
    connection.execute(sa.text("ALTER TABLE runs ADD COLUMN preparations INTEGER DEFAULT 0 NOT NULL"))


def _add_outcome(connection: sa.Connection) -> None:
    for table, column in (
        ("runs", "outcome SMALLINT NOT NULL DEFAULT 0"),
        ("runs", "failures TEXT NOT NULL DEFAULT '{}'"),
        ("run_samples", "failure TEXT"),
    ):
        connection.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN {column}"))


def _add_judges(connection: sa.Connection) -> None:
    run_judges.create(connection)


def _add_datasets(connection: sa.Connection) -> None:
    datasets.create(connection)
    dataset_chunks.create(connection)


def _add_registrations(connection: sa.Connection) -> None:
    judges.create(connection)


def _add_label_sets(connection: sa.Connection) -> None:
    for table in (label_sets, label_items, item_labels):
        table.create(connection)


def _add_writers(connection: sa.Connection) -> None:
    run_writers.create(connection)


def _add_gold_answers(connection: sa.Connection) -> None:
    kind = sa.LargeBinary().compile(connection.dialect)
    connection.execute(sa.text(f"ALTER TABLE runs ADD COLUMN gold_answers {kind}"))
    connection.execute(sa.text("ALTER TABLE run_samples ADD COLUMN missing_gold_answer TEXT"))


STEPS: Mapping[int, Step] = {
    2: _add_incident,
    3: _add_spending,
    4: _add_preparations,
    5: _add_outcome,
    6: _add_judges,
    7: _add_datasets,
    8: _add_registrations,
    9: _add_label_sets,
    10: _add_writers,
    11: _add_gold_answers,
}
"""The change to each version above 1. An empty database gets the newest tables at once."""

_versions = sa.Table(
    "run_schema",
    sa.MetaData(),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
)

# Any number unused elsewhere: replicas that start together upgrade one after another.
_ADVISORY_LOCK = 0x6472616D61


def migrate(
    database: Database,
    *,
    tables: sa.MetaData = metadata,
    steps: Mapping[int, Step] = STEPS,
    target: int = SCHEMA_VERSION,
) -> None:
    """Creates the tables, or upgrades them step by step, each step in a transaction.

    Raises:
        StoreError: A newer program wrote the store, or the store is unavailable.
    """
    reached = 0
    while reached < target:
        reached = database.write_repeatable(
            lambda connection: _advance(connection, database.name, tables, steps, target)
        )


def _advance(
    connection: sa.Connection, name: str, tables: sa.MetaData, steps: Mapping[int, Step], target: int
) -> int:
    """Upgrades by one version; returns the version reached."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    _versions.create(connection, checkfirst=True)
    version = connection.execute(sa.select(sa.func.max(_versions.c.version))).scalar_one()
    if version is None:
        tables.create_all(connection)
        reached = target
    elif version > target:
        raise StoreError(
            f"the {name} has version {version} and this program supports {target}: a newer dramaturg wrote it"
        )
    elif version == target:
        return target
    else:
        reached = int(version) + 1
        steps[reached](connection)
    connection.execute(_versions.insert().values(version=reached))
    return reached
