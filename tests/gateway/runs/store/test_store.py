from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_PREPARING, RUN_STATE_RUNNING
from dramaturg.database import StoreError
from dramaturg.database.database import create_engine
from gateway.runs.store import open_store
from gateway.runs.store.tables import SCHEMA
from tests.support.runs import create, judged, rows, sample_rows

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


def set_version(url: str, *statements: str) -> None:
    engine, _ = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def test_a_store_of_a_newer_program_is_refused(store_url: str) -> None:
    open_store(store_url).close()
    set_version(store_url, "UPDATE run_revision SET version_num = '9999', oldest = '9999'")
    with pytest.raises(StoreError, match=f"revision 9999.*supports {SCHEMA.head}.*newer"):
        open_store(store_url)


FORMER = (
    "ALTER TABLE label_items DROP COLUMN probability",
    "ALTER TABLE runs DROP COLUMN creator",
    "DROP TABLE run_revision",
    "DROP TABLE judge_certificates",
    "DROP TABLE judge_monitors",
    "ALTER TABLE run_results DROP COLUMN measured_confidence",
    "CREATE TABLE run_schema (version INTEGER NOT NULL PRIMARY KEY)",
    "INSERT INTO run_schema VALUES (11)",
    "ALTER TABLE run_samples DROP COLUMN due",
    "ALTER TABLE run_samples DROP COLUMN waits",
    "DROP VIEW run_queue",
)
"""Makes a store one of the release before its revisions."""


def former_store(url: str) -> None:
    """A run of two samples, of which one is judged and one begun, as the release before wrote it."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript((Path(__file__).parent / "former_store.sql").read_text(encoding="utf-8"))
        return
    store = open_store(url)
    create(store, samples=2)
    store.runs.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    store.samples.take("run", [0, 1], "gateway-1")
    store.attempts.finish("run", 1, [judged(0, {"m": [True]})])
    store.close()
    set_version(url, *FORMER)


def test_a_store_of_the_release_before_revisions_is_upgraded(store_url: str) -> None:
    former_store(store_url)
    for _ in range(2):
        store = open_store(store_url)
        run = store.runs.get("run")
        assert run is not None
        assert (run.state, run.counts.succeeded, run.counts.interrupted) == (RUN_STATE_RUNNING, 1, 0)
        store.close()
    store = open_store(store_url)
    # The sample that was begun when the former program ended is interrupted, and evaluated again.
    assert [work.index for work in store.samples.take("run", [0, 1], "gateway-2")] == [1]
    assert store.attempts.finish("run", 1, [judged(1, {"m": [False]})])
    run = store.runs.get("run")
    assert run is not None
    assert (run.counts.succeeded, run.counts.interrupted) == (2, 1)
    assert len(store.results.page("run", after=(-1, -1), limit=9)) == 2
    store.close()
    engine, _ = create_engine(store_url)
    with engine.connect() as connection:
        assert not sa.inspect(connection).has_table("run_schema")
        context = MigrationContext.configure(connection, opts={"include_name": of_runs})
        assert compare_metadata(context, SCHEMA.tables) == []
    engine.dispose()


def of_runs(name: str | None, kind: str, parents: object) -> bool:
    del parents
    return kind != "table" or name in SCHEMA.tables.tables


def test_a_store_of_a_release_before_that_is_refused(store_url: str) -> None:
    open_store(store_url).close()
    set_version(store_url, *FORMER, "UPDATE run_schema SET version = 10")
    with pytest.raises(StoreError, match="version 10; only version 11 can be upgraded"):
        open_store(store_url)
    # Nothing was changed.
    with pytest.raises(StoreError, match="version 10; only version 11 can be upgraded"):
        open_store(store_url)


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
