from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_pb2 import RUN_OUTCOME_UNSPECIFIED
from dramaturg.database.database import Database, create_engine
from dramaturg.database.errors import StoreError
from gateway.runs.records import Incident, SeenJudge
from gateway.runs.store import open_store
from gateway.runs.store.migrations import migrate
from gateway.runs.store.sample_rows import sample_rows
from gateway.runs.store.tables import SCHEMA_VERSION
from tests.support.runs import create, judged, rows

ROOT = Path(__file__).resolve().parents[4]


def test_a_store_is_found_as_it_was_left(store_url: str) -> None:
    for count in (1, 2):
        store = open_store(store_url)
        create(store, f"run{count}")
        assert len(store.runs.page("", limit=9)) == count
        store.close()


def test_a_sqlite_file_serves_one_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/deep/down/runs.sqlite3"
    script = f"from gateway.runs.store import open_store; open_store({url!r})"
    store = open_store(url)
    other = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert other.returncode != 0
    assert "is in use by process" in other.stderr
    assert "PostgreSQL" in other.stderr
    with pytest.raises(StoreError, match="in use by process"):
        open_store(url)
    store.close()
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("runs.sqlite3", "not a URL"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("mysql://user:secret@host/db", "SQLite and PostgreSQL"),
        ("sqlite:////dev/null/runs.sqlite3", "is unavailable"),
        ("postgresql://user:secret@127.0.0.1:1/db", "is unavailable"),
    ],
)
def test_what_cannot_be_opened_is_named_without_its_password(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as raised:
        open_store(url, retry_seconds=0.1)
    assert "secret" not in str(raised.value)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.sqlite3").write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(StoreError, match="not a database"):
        open_store(f"sqlite:///{tmp_path}/runs.sqlite3")
    (tmp_path / "runs.sqlite3").unlink()
    open_store(f"sqlite:///{tmp_path}/runs.sqlite3").close()


def test_a_store_of_a_newer_program_is_refused(store_url: str) -> None:
    open_store(store_url).close()
    engine, _ = create_engine(store_url)
    with engine.begin() as connection:
        connection.execute(sa.text(f"INSERT INTO run_schema VALUES ({SCHEMA_VERSION + 1})"))
    engine.dispose()
    with pytest.raises(StoreError, match=f"version {SCHEMA_VERSION + 1}.*supports {SCHEMA_VERSION}.*newer"):
        open_store(store_url)


def test_a_store_of_the_first_version_is_upgraded(store_url: str) -> None:
    store = open_store(store_url)
    create(store, samples=1)
    store.close()
    engine, _ = create_engine(store_url)
    with engine.begin() as connection:
        for statement in (
            "ALTER TABLE runs DROP COLUMN incident",
            "ALTER TABLE runs DROP COLUMN outcome",
            "ALTER TABLE runs DROP COLUMN failures",
            "ALTER TABLE run_samples DROP COLUMN failure",
            "ALTER TABLE runs RENAME COLUMN throughput TO pace",
            "ALTER TABLE run_samples RENAME COLUMN crashes TO tries",
            "ALTER TABLE runs DROP COLUMN preparations",
            "DROP TABLE run_spending",
            "DROP TABLE run_judges",
            "DROP TABLE run_writers",
            "ALTER TABLE runs DROP COLUMN gold_answers",
            "ALTER TABLE run_samples DROP COLUMN missing_gold_answer",
            "DROP TABLE dataset_chunks",
            "DROP TABLE datasets",
            "DROP TABLE judges",
            "DROP TABLE item_labels",
            "DROP TABLE label_items",
            "DROP TABLE label_sets",
            "DROP INDEX runs_deleted",
            "DELETE FROM run_schema",
            "INSERT INTO run_schema VALUES (1)",
        ):
            connection.execute(sa.text(statement))
    engine.dispose()
    store = open_store(store_url)
    store.runs.report_incident("run", 1, Incident("it fails", 1, 0, None))
    store.samples.take("run", [0], "a")
    store.attempts.finish("run", 1, [judged(0, {"m": [True]})])
    assert store.spending.today("").tokens > 0
    assert not store.judges.note("run", SeenJudge("critic", "a", "llm-critic", "1.0"))
    run = store.runs.get("run")
    assert run is not None
    assert run.counts.succeeded == 1
    assert run.outcome == RUN_OUTCOME_UNSPECIFIED
    assert run.counts.failures_by_reason == {}
    store.close()


def test_older_stores_are_brought_up_to_date_step_by_step(store_url: str) -> None:
    def tables(*columns: str) -> sa.MetaData:
        metadata = sa.MetaData()
        sa.Table("things", metadata, *(sa.Column(name, sa.Integer) for name in columns))
        return metadata

    def add(name: str) -> object:
        return lambda connection: connection.execute(sa.text(f"ALTER TABLE things ADD COLUMN {name} INTEGER"))

    engine, name = create_engine(store_url)
    database = Database(engine, name, retry_seconds=1)
    steps = {2: add("b"), 3: add("c")}
    migrate(database, tables=tables("a"), steps={}, target=1)
    migrate(database, tables=tables("a", "b", "c"), steps=steps, target=3)  # type: ignore[arg-type] # lambdas
    migrate(database, tables=tables("a", "b", "c"), steps=steps, target=3)  # type: ignore[arg-type] # lambdas
    with engine.connect() as connection:
        assert [c["name"] for c in sa.inspect(connection).get_columns("things")] == ["a", "b", "c"]
        assert connection.execute(sa.text("SELECT version FROM run_schema ORDER BY 1")).scalars().all() == [
            1,
            2,
            3,
        ]
    database.close()


def test_a_step_that_fails_leaves_the_version_before_it(store_url: str) -> None:
    def fail(connection: sa.Connection) -> None:
        connection.execute(sa.text("CREATE TABLE half (a INTEGER)"))
        raise ValueError("no further")

    engine, name = create_engine(store_url)
    database = Database(engine, name, retry_seconds=1)
    migrate(database, tables=sa.MetaData(), steps={}, target=1)
    with pytest.raises(ValueError, match="no further"):
        migrate(database, tables=sa.MetaData(), steps={2: fail}, target=2)
    with engine.connect() as connection:
        assert not sa.inspect(connection).has_table("half")
        assert connection.execute(sa.text("SELECT version FROM run_schema")).scalars().all() == [1]
    database.close()


@pytest.mark.slow
def test_replicas_that_start_at_once_do_not_disturb_each_other(postgres_url: str) -> None:
    script = f"from gateway.runs.store import open_store; open_store({postgres_url!r}).close()"
    started = [subprocess.Popen([sys.executable, "-c", script], cwd=ROOT) for _ in range(3)]
    assert [process.wait(60) for process in started] == [0, 0, 0]


@contextmanager
def pragma(setting: str) -> Iterator[None]:
    """Sets something in every new SQLite connection."""

    def prepare(connection: object, record: object) -> None:
        connection.execute(f"PRAGMA {setting}")  # type: ignore[attr-defined] # whatever the driver's is

    sa.event.listen(sa.pool.Pool, "connect", prepare)
    yield
    sa.event.remove(sa.pool.Pool, "connect", prepare)


def test_a_full_disk_is_named_and_corrupts_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.sqlite3"
    with pragma("max_page_count = 60"):
        store = open_store(url)
        create(store, samples=20)
        with pytest.raises(StoreError, match="full"):
            store.attempts.finish(
                "run", 1, [judged(i, {f"m{j}": [True] * 9 for j in range(60)}) for i in range(20)]
            )
        run = store.runs.get("run")
        assert run is not None
        assert (run.counts.succeeded, run.counts.judgements) == (0, 0)
        store.close()
    store = open_store(url)
    store.attempts.finish("run", 1, [judged(3, {"m": [True]})])
    assert len(store.results.page("run", after=(-1, -1), limit=9)) == 1
    store.close()
    engine, _ = create_engine(url)
    with engine.connect() as connection:
        assert connection.execute(sa.text("PRAGMA integrity_check")).scalar_one() == "ok"
    engine.dispose()


def test_a_read_only_file_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.sqlite3"
    store = open_store(url)
    create(store)
    store.close()
    with pragma("query_only = ON"), pytest.raises(StoreError, match="readonly"):
        open_store(url)


def test_a_read_only_server_is_named(postgres_url: str) -> None:
    store = open_store(postgres_url)
    create(store, samples=1)
    store.close()
    database = postgres_url.rpartition("/")[2]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on'.encode())
    with pytest.raises(StoreError, match="read-only"):
        store.samples.add("run", sample_rows(rows([5])))
    assert store.runs.get("run") is not None
    store.close()
