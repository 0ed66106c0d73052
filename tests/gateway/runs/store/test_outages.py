"""PostgreSQL that goes away, in the middle of what is done and in the moment of a commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCEEDED,
    DatasetManifest,
)
from dramaturg.api.evaluation.v1.run_service_pb2 import RERUN_SCOPE_ALL
from gateway.runs.store import StoreError, open_store
from tests.support.postgres import PostgresServer
from tests.support.runs import create, judged, spec


@pytest.mark.slow
@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_only_delays(postgres_url: str, postgres_server: PostgresServer, crash: bool) -> None:
    store = open_store(postgres_url, retry_seconds=30)
    create(store, samples=200)
    half = threading.Event()

    def work(start: int) -> None:
        for index in range(start, 200, 4):
            store.take_samples("run", [index], f"g{start}")
            store.finish_samples("run", 1, [judged(index, {"m": [True]})])
            if index > 60:
                half.set()

    with ThreadPoolExecutor(4) as threads:
        working = [threads.submit(work, start) for start in range(4)]
        assert half.wait(60)
        postgres_server.restart(crash=crash)
        for one in working:
            one.result(60)
    run = store.get_run("run")
    assert run is not None
    assert (run.counts.succeeded, run.counts.judgements) == (200, 200)
    assert run.counts.usage.prompt_token_count == 1000
    assert len(store.list_results("run", after=(-1, -1), limit=999)) == 200
    store.close()


def test_an_outage_that_lasts_is_named(postgres_url: str, postgres_server: PostgresServer) -> None:
    store = open_store(postgres_url, retry_seconds=0.3)
    create(store)
    postgres_server.stop()
    try:
        with pytest.raises(StoreError, match="is unavailable"):
            store.get_run("run")
    finally:
        postgres_server.start()
    assert store.get_run("run") is not None
    store.close()


@contextmanager
def connections_lost_after_commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The next commit happens, and its answer does not come."""
    lost: list[str] = []
    commit: Callable[[Any, Any], None] = PGDialect_psycopg.do_commit

    def do_commit(self: Any, connection: Any) -> None:
        commit(self, connection)
        if not lost:
            lost.append("commit")
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr(PGDialect_psycopg, "do_commit", do_commit)
        yield lost
    assert lost


def test_what_was_committed_unheard_is_not_done_twice(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgres_url)
    with connections_lost_after_commit(monkeypatch):
        create(store)
    with connections_lost_after_commit(monkeypatch):
        create(store, "other", samples=3)
    with connections_lost_after_commit(monkeypatch):
        work = store.take_samples("other", [0, 1], "g")
    assert [one.crashes for one in work] == [0, 0]
    with connections_lost_after_commit(monkeypatch):
        store.finish_samples("other", 1, [judged(0, {"m": [True]})])
    store.set_manifest("other", DatasetManifest(sha256="x"))
    with connections_lost_after_commit(monkeypatch):
        assert store.change_state("other", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING]) is not None
    with connections_lost_after_commit(monkeypatch):
        assert store.update_spec("other", spec(models=["m"]), expected=spec()) is not None
    store.change_state("other", RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING])
    with connections_lost_after_commit(monkeypatch):
        assert store.begin_again("other", RERUN_SCOPE_ALL) is not None
    run = store.get_run("other")
    assert run is not None
    assert (run.attempt, run.counts.interrupted, run.counts.usage.prompt_token_count) == (2, 0, 5)
    store.close()
