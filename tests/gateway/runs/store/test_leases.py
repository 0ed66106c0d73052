from __future__ import annotations

import time

import psycopg

from gateway.runs.store import RunStore, open_store


def test_a_lease_that_is_renewed_lives_until_it_is_dropped(store: RunStore) -> None:
    store.renew_lease("g1", 30)
    store.renew_lease("g2", 30)
    store.renew_lease("g1", 60)
    assert store.live_executors() == ["g1", "g2"]
    store.drop_lease("g1")
    assert store.live_executors() == ["g2"]


def test_a_lease_runs_out(store: RunStore) -> None:
    store.renew_lease("g1", -0.001)
    store.renew_lease("g2", 30)
    assert store.live_executors() == ["g2"]


def test_the_stores_clock_tells_who_lives(postgres_url: str) -> None:
    store = open_store(postgres_url)
    store.renew_lease("g1", 30)
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("SELECT expires FROM run_executors").fetchone()
    assert row is not None
    assert abs(row[0] / 1e6 - time.time() - 30) < 10
    store.close()
