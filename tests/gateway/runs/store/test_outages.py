"""PostgreSQL that goes away in the middle of what is done."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dramaturg.database import StoreError
from gateway.runs.store import open_store
from tests.support.postgres import PostgresServer
from tests.support.runs import create, judged


@pytest.mark.slow
@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_only_delays(postgres_url: str, postgres_server: PostgresServer, crash: bool) -> None:
    store = open_store(postgres_url, retry_seconds=30)
    create(store, samples=200)
    half = threading.Event()

    def work(start: int) -> None:
        for index in range(start, 200, 4):
            store.samples.take("run", [index], f"g{start}")
            store.attempts.finish("run", 1, [judged(index, {"m": [True]})])
            if index > 60:
                half.set()

    with ThreadPoolExecutor(4) as threads:
        working = [threads.submit(work, start) for start in range(4)]
        assert half.wait(60)
        postgres_server.restart(crash=crash)
        for one in working:
            one.result(60)
    run = store.runs.get("run")
    assert run is not None
    assert (run.counts.succeeded, run.counts.judgements) == (200, 200)
    assert run.counts.usage.prompt_token_count == 1000
    assert len(store.results.page("run", after=(-1, -1), limit=999)) == 200
    store.close()


def test_an_outage_that_lasts_is_named(postgres_url: str, postgres_server: PostgresServer) -> None:
    store = open_store(postgres_url, retry_seconds=0.3)
    create(store)
    postgres_server.stop()
    try:
        with pytest.raises(StoreError, match="is unavailable"):
            store.runs.get("run")
    finally:
        postgres_server.start()
    assert store.runs.get("run") is not None
    store.close()
