"""Creates the tables of a database, and upgrades those of earlier releases by revisions of Alembic.

There are no downgrades. A revision expands the tables: programs of the release before it use them while it
is rolled out, and when it is rolled back. What they used is removed in the release after that (expand and
contract).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from dramaturg.database import StoreError
from dramaturg.database.database import Database

# Any number unused elsewhere: processes that start together upgrade one after another.
_ADVISORY_LOCK = 0x6472616D61
_INSUFFICIENT_PRIVILEGE = "42501"


@dataclass(frozen=True)
class Schema:
    """The tables of one owner, of which a database may have several."""

    tables: sa.MetaData
    """The tables as the newest revision leaves them. A database without any gets them at once."""
    revisions: Path
    """The folder of the revisions, as Alembic reads them."""
    head: str
    """The newest revision."""
    oldest: str
    """The oldest revision whose programs can use the tables of the newest one: the revisions after it only
    add tables, views, and columns that have a default or may be empty. At the latest, that of the release
    before."""
    version_table: str
    """The table with the revision of a database, in the form of Alembic, and its ``oldest``."""
    former: str
    """A table of databases that have no revision yet. The first revision upgrades them."""


def migrate(database: Database, schema: Schema) -> None:
    """Creates the tables, or upgrades them in one transaction. Tables of the newest revision are only read.

    Raises:
        StoreError: A newer release wrote the tables and removed what this one uses, the role of the address
            may not change them, or the database is unavailable.
    """
    try:
        database.write_repeatable(lambda connection: _migrate(connection, database.name, schema))
    except sa.exc.ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) != _INSUFFICIENT_PRIVILEGE:
            raise
        raise StoreError(
            f"the tables of the {database.name} lack revision {schema.head}, and the role of its address may "
            f"not change them ({str(error.orig).splitlines()[0]}): run `python -m "
            "dramaturg.service.migration` with the address of one that may"
        ) from error


def _migrate(connection: sa.Connection, name: str, schema: Schema) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    versions = _versions(schema)
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
        connection.execute(versions.insert().values(version_num=schema.head, oldest=schema.oldest))


def _versions(schema: Schema) -> sa.Table:
    return sa.Table(
        schema.version_table,
        sa.MetaData(),
        sa.Column("version_num", sa.String(32), primary_key=True),
        sa.Column("oldest", sa.String(32)),
    )


def _upgrade(connection: sa.Connection, name: str, schema: Schema, revision: str | None) -> None:
    # Imported here: it takes longer than to open a database of the newest revision.
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(schema.revisions), version_locations=[str(schema.revisions)])
    known = {script.revision for script in scripts.walk_revisions()}
    if revision is not None and revision not in known:
        if _oldest(connection, schema) in known:
            return
        raise StoreError(
            f"the {name} has revision {revision} and this program supports {schema.head}: a newer dramaturg "
            "wrote it, and removed what this one uses"
        )
    context = MigrationContext.configure(connection, opts={"version_table": schema.version_table})
    with Operations.context(context):
        for script in reversed(list(scripts.iterate_revisions(schema.head, revision))):
            script.module.upgrade()
    _stamp(connection, schema)


def _has_oldest(connection: sa.Connection, schema: Schema) -> bool:
    """Whether the version table has its second column: releases before the first tag made it without."""
    columns = sa.inspect(connection).get_columns(schema.version_table)
    return "oldest" in {column["name"] for column in columns}


def _oldest(connection: sa.Connection, schema: Schema) -> str | None:
    if not _has_oldest(connection, schema):
        return None
    oldest: str | None = connection.execute(sa.select(_versions(schema).c.oldest)).scalar_one()
    return oldest


def _stamp(connection: sa.Connection, schema: Schema) -> None:
    versions, values = _versions(schema), {"version_num": schema.head, "oldest": schema.oldest}
    versions.create(connection, checkfirst=True)
    if not _has_oldest(connection, schema):
        connection.execute(sa.text(f"ALTER TABLE {schema.version_table} ADD COLUMN oldest VARCHAR(32)"))
    if connection.execute(versions.update().values(values)).rowcount == 0:
        connection.execute(versions.insert().values(values))
