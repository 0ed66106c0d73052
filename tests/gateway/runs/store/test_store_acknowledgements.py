"""A write takes effect once, whether the acknowledgement of its commit arrives or not."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
import sqlalchemy as sa

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JudgeRegistration
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCEEDED,
    DatasetManifest,
)
from dramaturg.api.evaluation.v1.run_service_pb2 import RERUN_SCOPE_ALL
from dramaturg.database.database import Database, create_engine
from dramaturg.database.errors import StoreError
from dramaturg.database.tables import metadata, run_writers
from dramaturg.testing import until
from gateway.runs.records import Incident, NewDataset, NewRun, SeenJudge, Spending
from gateway.runs.store import RunStore, open_store, runs
from gateway.runs.store.sample_rows import sample_rows
from gateway.runs.store.sql_store import SqlRunStore
from tests.gateway.runs.store.test_datasets import new as new_dataset
from tests.gateway.runs.store.test_labels import new as new_label_set
from tests.support.runs import create, invalid_row, judged, lost_acknowledgements, rows, spec

MICROSECONDS = 1_700_000_000_000_000
NOW = datetime.fromtimestamp(MICROSECONDS / 1e6, UTC)
JUDGE = JudgeRegistration(role="critic", name="theirs", target="host:1")
CONTENT = b"0123456789"
DATASET: NewDataset = new_dataset(CONTENT)

Method = Callable[[RunStore], Any]

WRITES: Mapping[str, Method] = {
    "create_run": lambda store: store.create_run(NewRun(id="new", tenant="a", spec=spec(), request_id="r")),
    "change_state": lambda store: store.change_state(
        "run", RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING], reason="done"
    ),
    "update_spec": lambda store: store.update_spec("run", spec(models=["m"]), expected=spec()),
    "delete_run": lambda store: store.delete_run("run"),
    "purge_deleted": lambda store: store.purge_deleted(),
    "add_samples": lambda store: store.add_samples("run", sample_rows([*rows([7]), invalid_row(8)])),
    "begin_preparation": lambda store: store.begin_preparation("run"),
    "end_preparation": lambda store: store.end_preparation("run"),
    "set_manifest": lambda store: store.set_manifest("run", DatasetManifest(sha256="y")),
    "take_samples": lambda store: store.take_samples("run", [0, 1], "here"),
    "finish_samples": lambda store: store.finish_samples("run", 1, [judged(0, {"m": [True, False]})]),
    "add_usage": lambda store: store.add_usage("run", "a", Usage(prompt_token_count=15)),
    "report_incident": lambda store: store.report_incident("run", 1, Incident("it is down", 3, 10.0, 5.0)),
    "release_samples": lambda store: store.release_samples("run", [1]),
    "begin_again": lambda store: store.begin_again("ended", RERUN_SCOPE_ALL, fresh=True),
    "note_judge": lambda store: store.note_judge("run", SeenJudge("critic", "a", "llm-critic", "2.0")),
    "register_judge": lambda store: store.register_judge("b", JUDGE, 1),
    "update_judge": lambda store: store.update_judge(
        "a", JudgeRegistration(role="critic", name="theirs", target="host:2"), 1
    ),
    "remove_judge": lambda store: store.remove_judge("a", "critic", "theirs"),
    "renew_lease": lambda store: store.renew_lease("here", 30),
    "drop_lease": lambda store: store.drop_lease("there"),
    "create_dataset": lambda store: store.create_dataset(new_dataset(b"more"), 20),
    "append_dataset": lambda store: store.append_dataset(DATASET.id, "a", 4, CONTENT[4:]),
    "set_dataset_ready": lambda store: store.set_dataset_ready(DATASET.id, "a"),
    "delete_dataset": lambda store: store.delete_dataset(DATASET.id, "a"),
    "purge_datasets": lambda store: store.purge_datasets(),
    "create_label_set": lambda store: store.create_label_set(new_label_set("two"), 2),
    "write_label": lambda store: store.write_label(1, 1, "ann", "PASS", "", 5),
    "delete_label_set": lambda store: store.delete_label_set(1),
    "add_spending": lambda store: store.add_spending("a", Spending(15, 0.5)),
}
"""Each method of the store that writes, called once on the store of ``prepared``."""


def prepared(url: str, **options: float) -> RunStore:
    """A store with a running run of three samples, of which one is begun, and one of everything else."""
    store = open_store(url, **options)
    create(store, samples=3, tenant="a")
    store.set_manifest("run", DatasetManifest(sha256="x"))
    store.begin_preparation("run")
    store.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    store.take_samples("run", [1], "there")
    store.note_judge("run", SeenJudge("critic", "a", "llm-critic", "1.0"))
    create(store, "ended", samples=1, tenant="a")
    store.set_manifest("ended", DatasetManifest(sha256="x"))
    store.change_state("ended", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    store.finish_samples("ended", 1, [judged(0, {"m": [True]})])
    store.change_state("ended", RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING])
    create(store, "gone", samples=1)
    with mock.patch.object(store, "purge_deleted", return_value=False):
        store.delete_run("gone")
    store.register_judge("a", JUDGE, 1)
    for gateway in ("there", "other"):
        store.renew_lease(gateway, 30)
    deleted = new_dataset(b"deleted")
    for dataset in (DATASET, deleted):
        store.create_dataset(dataset)
    store.append_dataset(DATASET.id, "a", 0, CONTENT[:4])
    with mock.patch.object(store, "purge_datasets", return_value=False):
        store.delete_dataset(deleted.id, "a")
    store.create_label_set(new_label_set("one"), 2)
    store.add_spending("a", Spending(1, 0))
    return store


def state(url: str) -> Mapping[str, Any]:
    """All rows of a store."""
    engine, _ = create_engine(url)
    with engine.connect() as connection:
        found = {
            table.name: sorted(map(repr, connection.execute(sa.select(table))))
            for table in metadata.sorted_tables
            if table is not run_writers
        }
    engine.dispose()
    return found


@pytest.fixture(autouse=True)
def _one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "now", lambda: NOW)
    monkeypatch.setattr(Database, "now", lambda *_: MICROSECONDS)


@pytest.fixture
def reference_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/reference.sqlite3"


def single_execution(url: str, write: Method) -> Any:
    store = prepared(url)
    before = state(url)
    result = write(store)
    assert state(url) != before, "the method writes nothing"
    store.close()
    return result


def test_each_method_that_writes_is_tested() -> None:
    methods = {
        name
        for name, method in vars(SqlRunStore).items()
        if inspect.isfunction(method) and "_database.write(" in inspect.getsource(method)
    }
    assert set(WRITES) == methods


@pytest.mark.parametrize("name", WRITES)
def test_a_write_whose_acknowledgement_is_lost_takes_effect_once(
    store_url: str, reference_url: str, name: str
) -> None:
    expected = single_execution(reference_url, WRITES[name])
    store = prepared(store_url)
    with lost_acknowledgements():
        result = WRITES[name](store)
    store.close()
    assert state(store_url) == state(reference_url)
    assert result == expected


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_is_given_up_and_repeated_takes_effect_once(
    store_url: str, reference_url: str, name: str
) -> None:
    def purge(store: RunStore) -> None:
        """Deletes what a deletion that was given up leaves."""
        while store.purge_deleted() or store.purge_datasets():
            pass

    expected = single_execution(reference_url, WRITES[name])
    with_purge = open_store(reference_url)
    purge(with_purge)
    with_purge.close()
    store = prepared(store_url, retry_seconds=0)
    with lost_acknowledgements(always=True), pytest.raises(StoreError) as raised:
        WRITES[name](store)
    # Others write between, with the writers that are free.
    store.renew_lease("other", 30)
    assert raised.value.repeat is not None
    assert raised.value.repeat() == expected
    purge(store)
    store.close()
    assert state(store_url) == state(reference_url)


async def test_the_outcome_of_a_commit_in_progress_is_awaited(postgres_url: str) -> None:
    """A server may commit after the client has lost the connection and begun the next attempt."""
    store = prepared(postgres_url)
    before = store.spent_today("a")
    attempt = Database._once
    committing: list[sa.Connection] = []

    def once(engine: sa.Engine, work: Any) -> Any:
        if committing:
            return attempt(engine, work)
        connection = engine.connect()
        work(connection)
        committing.append(connection)
        raise sa.exc.OperationalError("COMMIT", {}, Exception("the connection was lost"))

    with mock.patch.object(Database, "_once", staticmethod(once)):
        adding = asyncio.create_task(asyncio.to_thread(store.add_spending, "a", Spending(15, 0)))
        await until(lambda: _waits_for_lock(postgres_url))
        committing[0].commit()
        await adding
    committing[0].close()
    assert store.spent_today("a").tokens == before.tokens + 15
    store.close()


def _waits_for_lock(url: str) -> bool:
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchone() is not None


def test_rows_of_writers_that_ended_are_deleted(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(store, SqlRunStore)

    def writers() -> Sequence[str]:
        found: Sequence[str] = store._database.read(
            lambda connection: connection.execute(sa.select(run_writers.c.id)).scalars().all()
        )
        return found

    store.renew_lease("here", 30)
    store.renew_lease("here", 30)
    (first,) = writers()
    in_eight_days = time.time() + 8 * 24 * 3600
    monkeypatch.setattr(time, "time", lambda: in_eight_days)
    other = SqlRunStore(Database(*create_engine(store._database.url), retry_seconds=1))
    other.renew_lease("there", 30)
    other.close()
    (second,) = writers()
    assert first != second
    store.renew_lease("here", 30)
    assert set(writers()) == {first, second}
