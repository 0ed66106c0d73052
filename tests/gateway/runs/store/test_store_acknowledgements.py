"""A write takes effect once, whether the acknowledgement of its commit arrives or not."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
import sqlalchemy as sa

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.judge_certificate_pb2 import JudgeCertificate
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JudgeRegistration
from dramaturg.api.evaluation.v1.judge_monitor_pb2 import JudgeMonitor
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCEEDED,
    DatasetManifest,
)
from dramaturg.api.evaluation.v1.run_service_pb2 import RERUN_SCOPE_ALL
from dramaturg.database import StoreError
from dramaturg.database.database import Database, Repository, create_engine, metadata, run_writers
from dramaturg.testing import until
from gateway.runs.records import Incident, MonitoredJudge, NewDataset, NewRun, SeenJudge, Spending
from gateway.runs.store import RunStore, open_store, runs
from tests.gateway.runs.store.test_datasets import new as new_dataset
from tests.gateway.runs.store.test_labels import new as new_label_set
from tests.support.runs import create, invalid_row, judged, lost_acknowledgements, rows, sample_rows, spec

MICROSECONDS = 1_700_000_000_000_000
NOW = datetime.fromtimestamp(MICROSECONDS / 1e6, UTC)
JUDGE = JudgeRegistration(role="critic", name="theirs", target="host:1")
CERTIFICATE = JudgeCertificate(name="theirs", version="2")
CONTENT = b"0123456789"
DATASET: NewDataset = new_dataset(CONTENT)

Method = Callable[[RunStore], Any]

MONITORED = MonitoredJudge("a", "critic", "theirs", JudgeMonitor(run_id="run"), "")
WRITES: Mapping[str, Method] = {
    "runs.create": lambda store: store.runs.create(NewRun(id="new", tenant="a", spec=spec(), request_id="r")),
    "runs.change_state": lambda store: store.runs.change_state(
        "run", RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING], reason="done"
    ),
    "runs.update_spec": lambda store: store.runs.update_spec("run", spec(models=["m"]), expected=spec()),
    "runs.delete": lambda store: store.runs.delete("run"),
    "runs.hide": lambda store: store.runs.hide("run"),
    "runs.purge": lambda store: store.runs.purge(),
    "samples.add": lambda store: store.samples.add("run", sample_rows([*rows([7]), invalid_row(8)])),
    "runs.begin_preparation": lambda store: store.runs.begin_preparation("run"),
    "runs.end_preparation": lambda store: store.runs.end_preparation("run"),
    "runs.set_manifest": lambda store: store.runs.set_manifest("run", DatasetManifest(sha256="y")),
    "samples.take": lambda store: store.samples.take("run", [0, 1], "here"),
    "attempts.finish": lambda store: store.attempts.finish("run", 1, [judged(0, {"m": [True, False]})]),
    "attempts.add_usage": lambda store: store.attempts.add_usage("run", "a", Usage(prompt_token_count=15)),
    "runs.report_incident": lambda store: store.runs.report_incident(
        "run", 1, Incident("it is down", 3, 10.0, 5.0)
    ),
    "samples.put_off": lambda store: store.samples.put_off("run", {1: (2, 30.0)}),
    "samples.release": lambda store: store.samples.release("run", [1]),
    "attempts.begin": lambda store: store.attempts.begin("ended", RERUN_SCOPE_ALL, fresh=True),
    "judges.note": lambda store: store.judges.note("run", SeenJudge("critic", "a", "llm-critic", "2.0")),
    "registrations.add": lambda store: store.registrations.add("b", JUDGE, 1),
    "registrations.replace": lambda store: store.registrations.replace(
        "a", JudgeRegistration(role="critic", name="theirs", target="host:2"), 1
    ),
    "registrations.remove": lambda store: store.registrations.remove("a", "critic", "theirs"),
    "certificates.put": lambda store: store.certificates.put("a", "critic", "theirs", CERTIFICATE),
    "monitors.put": lambda store: store.monitors.put(replace(MONITORED, name="ours"), b"base"),
    "monitors.replace": lambda store: store.monitors.replace(
        replace(MONITORED, revision=MICROSECONDS), replace(MONITORED, attempt=2)
    ),
    "monitors.remove": lambda store: store.monitors.remove("a", "critic", "theirs"),
    "datasets.create": lambda store: store.datasets.create(new_dataset(b"more"), 20),
    "datasets.append": lambda store: store.datasets.append(DATASET.id, "a", 4, CONTENT[4:]),
    "datasets.set_ready": lambda store: store.datasets.set_ready(DATASET.id, "a"),
    "datasets.delete": lambda store: store.datasets.delete(DATASET.id, "a"),
    "datasets.hide": lambda store: store.datasets.hide(DATASET.id, "a"),
    "datasets.purge": lambda store: store.datasets.purge(),
    "label_sets.create": lambda store: store.label_sets.create(new_label_set("two"), 2),
    "label_sets.write_label": lambda store: store.label_sets.write_label(1, 1, "ann", "PASS", "", 5),
    "label_sets.delete": lambda store: store.label_sets.delete(1),
    "spending.add": lambda store: store.spending.add("a", Spending(15, 0.5)),
}
"""Each method of the store that writes, called once on the store of ``prepared``."""


def prepared(url: str, **options: float) -> RunStore:
    """A store with a running run of three samples, of which one is begun, and one of everything else."""
    store = open_store(url, **options)
    create(store, samples=3, tenant="a")
    store.runs.set_manifest("run", DatasetManifest(sha256="x"))
    store.runs.begin_preparation("run")
    store.runs.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    store.samples.take("run", [1], "there")
    store.judges.note("run", SeenJudge("critic", "a", "llm-critic", "1.0"))
    create(store, "ended", samples=1, tenant="a")
    store.runs.set_manifest("ended", DatasetManifest(sha256="x"))
    store.runs.change_state("ended", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    store.attempts.finish("ended", 1, [judged(0, {"m": [True]})])
    store.runs.change_state("ended", RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING])
    create(store, "gone", samples=1)
    with mock.patch.object(store.runs, "purge", return_value=False):
        store.runs.delete("gone")
    store.registrations.add("a", JUDGE, 1)
    store.certificates.put("a", "critic", "theirs", JudgeCertificate(name="theirs", version="1"))
    store.monitors.put(MONITORED, b"base")
    deleted = new_dataset(b"deleted")
    for dataset in (DATASET, deleted):
        store.datasets.create(dataset)
    store.datasets.append(DATASET.id, "a", 0, CONTENT[:4])
    with mock.patch.object(store.datasets, "purge", return_value=False):
        store.datasets.delete(deleted.id, "a")
    store.label_sets.create(new_label_set("one"), 2)
    store.spending.add("a", Spending(1, 0))
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


def test_each_method_that_writes_is_tested(store: RunStore) -> None:
    methods = {
        f"{table}.{name}"
        for table, repository in vars(store).items()
        if isinstance(repository, Repository)
        for name, method in vars(type(repository)).items()
        if inspect.isfunction(method) and method.__code__.co_name in {"write", "insert_or_find"}
    }
    assert set(WRITES) == methods | {"runs.delete", "datasets.delete"}  # several transactions each


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
        while store.runs.purge() or store.datasets.purge():
            pass

    expected = single_execution(reference_url, WRITES[name])
    with_purge = open_store(reference_url)
    purge(with_purge)
    with_purge.close()
    store = prepared(store_url, retry_seconds=0)
    with lost_acknowledgements(always=True), pytest.raises(StoreError) as raised:
        WRITES[name](store)
    # Others write between, with the writers that are free.
    store.runs.end_preparation("absent")
    assert raised.value.repeat is not None
    assert raised.value.repeat() == expected
    purge(store)
    store.close()
    assert state(store_url) == state(reference_url)


async def test_the_outcome_of_a_commit_in_progress_is_awaited(postgres_url: str) -> None:
    """A server may commit after the client has lost the connection and begun the next attempt."""
    store = prepared(postgres_url)
    before = store.spending.today("a")
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
        adding = asyncio.create_task(asyncio.to_thread(store.spending.add, "a", Spending(15, 0)))
        await until(lambda: _waits_for_lock(postgres_url))
        committing[0].commit()
        await adding
    committing[0].close()
    assert store.spending.today("a").tokens == before.tokens + 15
    store.close()


def _waits_for_lock(url: str) -> bool:
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchone() is not None


def test_rows_of_writers_that_ended_are_deleted(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def writers() -> Sequence[str]:
        found: Sequence[str] = store.database.read(
            lambda connection: connection.execute(sa.select(run_writers.c.id)).scalars().all()
        )
        return found

    store.runs.end_preparation("absent")
    store.runs.end_preparation("absent")
    (first,) = writers()
    in_eight_days = time.time() + 8 * 24 * 3600
    monkeypatch.setattr(time, "time", lambda: in_eight_days)
    other = RunStore(Database(*create_engine(store.database.url), retry_seconds=1))
    other.runs.end_preparation("absent")
    other.close()
    (second,) = writers()
    assert first != second
    store.runs.end_preparation("absent")
    assert set(writers()) == {first, second}
