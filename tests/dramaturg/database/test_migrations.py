from __future__ import annotations

import ast
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from dramaturg.database import StoreError
from dramaturg.database.database import Database, create_engine
from dramaturg.database.migrations import Schema, migrate
from gateway.runs.store.tables import SCHEMA as RUNS
from services.generation.ledger.store import SCHEMA as LEDGER

ROOT = Path(__file__).resolve().parents[3]


def schema(folder: Path, *columns: str, head: str, oldest: str = "1") -> Schema:
    tables = sa.MetaData()
    sa.Table("things", tables, *(sa.Column(name, sa.Integer) for name in columns))
    return Schema(tables, folder, head, oldest, "thing_revision", "former_things")


def revision(folder: Path, name: str, after: str | None, *lines: str) -> None:
    body = "".join(f"    {line}\n" for line in lines)
    (folder / f"r{name}.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\n\n"
        f"revision = {name!r}\ndown_revision = {after!r}\n\ndef upgrade():\n{body}",
        encoding="utf-8",
    )


def add(column: str) -> str:
    return f"op.add_column('things', sa.Column({column!r}, sa.Integer))"


def columns_of(database: Database) -> list[str]:
    return database.read(
        lambda connection: [column["name"] for column in sa.inspect(connection).get_columns("things")]
    )


def revision_of(database: Database) -> str:
    query = sa.text("SELECT version_num FROM thing_revision")
    return str(database.read(lambda connection: connection.execute(query).scalar_one()))


def test_tables_are_upgraded_by_each_revision_in_turn(database: Database, tmp_path: Path) -> None:
    revision(tmp_path, "1", None, "raise AssertionError('not reached: the tables are new')")
    migrate(database, schema(tmp_path, "a", head="1"))
    revision(tmp_path, "2", "1", add("b"))
    revision(tmp_path, "3", "2", add("c"))
    for _ in range(2):
        migrate(database, schema(tmp_path, "a", "b", "c", head="3"))
        assert (columns_of(database), revision_of(database)) == (["a", "b", "c"], "3")


def test_tables_without_a_revision_are_upgraded_by_the_first(database: Database, tmp_path: Path) -> None:
    database.write_repeatable(
        lambda connection: connection.execute(sa.text("CREATE TABLE things (a INTEGER)"))
    )
    database.write_repeatable(
        lambda connection: connection.execute(sa.text("CREATE TABLE former_things (a INTEGER)"))
    )
    revision(tmp_path, "1", None, "op.drop_table('former_things')")
    revision(tmp_path, "2", "1", add("b"))
    migrate(database, schema(tmp_path, "a", "b", head="2"))
    assert (columns_of(database), revision_of(database)) == (["a", "b"], "2")
    assert not database.read(lambda connection: sa.inspect(connection).has_table("former_things"))


def test_a_revision_that_fails_changes_nothing(database: Database, tmp_path: Path) -> None:
    revision(tmp_path, "1", None, "pass")
    migrate(database, schema(tmp_path, "a", head="1"))
    revision(tmp_path, "2", "1", add("b"))
    revision(tmp_path, "3", "2", add("c"), "raise ValueError('no further')")
    with pytest.raises(ValueError, match="no further"):
        migrate(database, schema(tmp_path, "a", "b", "c", head="3"))
    assert (columns_of(database), revision_of(database)) == (["a"], "1")


def test_tables_of_a_newer_release_are_refused(database: Database, tmp_path: Path) -> None:
    revision(tmp_path, "1", None, "pass")
    revision(tmp_path, "2", "1", "pass")
    migrate(database, schema(tmp_path, "a", head="2", oldest="2"))
    (tmp_path / "r2.py").unlink()
    with pytest.raises(StoreError, match="has revision 2 and this program supports 1: a newer dramaturg"):
        migrate(database, schema(tmp_path, "a", head="1"))


@pytest.mark.parametrize("of_former", [False, True])
def test_tables_that_a_newer_release_expanded_serve_the_one_before(
    database: Database, tmp_path: Path, of_former: bool
) -> None:
    """Also where that release made the table of revisions without the column ``oldest``."""
    revision(tmp_path, "1", None, "pass")
    migrate(database, schema(tmp_path, "a", head="1"))
    if of_former:
        database.write_repeatable(
            lambda connection: connection.execute(sa.text("ALTER TABLE thing_revision DROP COLUMN oldest"))
        )
    revision(tmp_path, "2", "1", add("b"))
    migrate(database, schema(tmp_path, "a", "b", head="2"))
    (tmp_path / "r2.py").unlink()
    before = schema(tmp_path, "a", head="1")
    migrate(database, before)
    insert = before.tables.tables["things"].insert()
    database.write_repeatable(lambda connection: connection.execute(insert, {"a": 1}))
    assert (columns_of(database), revision_of(database)) == (["a", "b"], "2")


@pytest.mark.parametrize("owner", [RUNS, LEDGER])
def test_revisions_since_the_oldest_supported_one_only_add(owner: Schema) -> None:
    """So programs of that revision use the tables of the newest one."""
    scripts = ScriptDirectory(str(owner.revisions), version_locations=[str(owner.revisions)])
    assert scripts.get_current_head() == owner.head
    for script in scripts.iterate_revisions(owner.head, owner.oldest):
        source = ast.parse(Path(script.path).read_text(encoding="utf-8"))
        for call in (node for node in ast.walk(source) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            if not name.startswith("op."):
                continue
            assert name in {"op.add_column", "op.create_table", "op.create_index", "op.execute"}, script.path
            text = ast.unparse(call)
            if name == "op.add_column":
                assert "nullable=False" not in text or "server_default=" in text, text
            if name == "op.execute":
                assert ast.unparse(call.args[0]).startswith("CREATE_"), text


def test_owners_of_one_database_have_their_own_revisions(database: Database, tmp_path: Path) -> None:
    revision(tmp_path, "1", None, "pass")
    migrate(database, schema(tmp_path, "a", head="1"))
    other = sa.MetaData()
    sa.Table("others", other, sa.Column("a", sa.Integer))
    theirs = replace(
        schema(tmp_path, head="1"), tables=other, version_table="other_revision", former="former"
    )
    migrate(database, theirs)
    assert database.read(lambda connection: sa.inspect(connection).has_table("others"))


def test_a_new_file_is_opened_while_another_process_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "database.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        # The other process ends its transaction while this one waits.
        monkeypatch.setattr(time, "sleep", lambda _: other.execute("ROLLBACK"))
        database = Database(*create_engine(f"sqlite:///{path}"), retry_seconds=5)
        assert (
            database.read(lambda connection: connection.execute(sa.text("PRAGMA journal_mode")).scalar())
            == "wal"
        )
        database.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode=DELETE")
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.undo()
        database = Database(*create_engine(f"sqlite:///{path}", busy_seconds=0), retry_seconds=5)
        with pytest.raises(StoreError, match="database is locked"):
            database.read(lambda connection: None)
        database.close()


def test_a_database_of_the_newest_revision_is_opened_without_alembic(tmp_path: Path) -> None:
    script = (
        "import sys; from gateway.runs.store import open_store; "
        f"open_store('sqlite:///{tmp_path}/runs.sqlite3').close(); print('alembic' in sys.modules)"
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert done.stdout == "False\n"
