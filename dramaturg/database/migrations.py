"""Creates the tables of a database, and upgrades those of earlier releases by revisions of Alembic.

There are no downgrades.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from dramaturg.database.database import Database
from dramaturg.database.errors import StoreError

# Any number unused elsewhere: processes that start together upgrade one after another.
_ADVISORY_LOCK = 0x6472616D61


@dataclass(frozen=True)
class Schema:
    """The tables of one owner, of which a database may have several."""

    tables: sa.MetaData
    """The tables as the newest revision leaves them. A database without any gets them at once."""
    revisions: Path
    """The folder of the revisions, as Alembic reads them."""
    head: str
    """The newest revision."""
    version_table: str
    """The table with the revision of a database, in the form of Alembic."""
    former: str
    """A table of databases that have no revision yet. The first revision upgrades them."""


def migrate(database: Database, schema: Schema) -> None:
    """Creates the tables, or upgrades them in one transaction.

    Raises:
        StoreError: A newer release wrote the tables, or the database is unavailable.
    """
    database.write_repeatable(lambda connection: _migrate(connection, database.name, schema))


def _migrate(connection: sa.Connection, name: str, schema: Schema) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    versions = sa.Table(
        schema.version_table, sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True)
    )
    present = sa.inspect(connection).has_table
    if present(schema.version_table):
        revision = connection.execute(sa.select(versions.c.version_num)).scalar_one()
        if revision != schema.head:
            _upgrade(connection, name, schema, revision)
    elif present(schema.former):
        _upgrade(connection, name, schema, None)
    else:
        schema.tables.create_all(connection)
        versions.create(connection)
        connection.execute(versions.insert().values(version_num=schema.head))


def _upgrade(connection: sa.Connection, name: str, schema: Schema, revision: str | None) -> None:
    # Imported here: it takes longer than to open a database of the newest revision.
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(schema.revisions), version_locations=[str(schema.revisions)])
    if revision is not None and revision not in {script.revision for script in scripts.walk_revisions()}:
        raise StoreError(
            f"the {name} has revision {revision} and this program supports {schema.head}: a newer dramaturg "
            "wrote it"
        )
    context = MigrationContext.configure(connection, opts={"version_table": schema.version_table})
    with Operations.context(context):
        for script in reversed(list(scripts.iterate_revisions(schema.head, revision))):
            script.module.upgrade()
    context.stamp(scripts, schema.head)
