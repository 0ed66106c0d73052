"""Spending counts by tenant on the day on which it is added."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    DatasetManifest,
)
from dramaturg.api.evaluation.v1.run_service_pb2 import RERUN_SCOPE_ALL
from dramaturg.database.database import Database
from gateway.runs.records import Spending
from gateway.runs.store import RunStore
from tests.support.runs import create, judged

DAY = 24 * 3600 * 1_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time of the store in microseconds."""
    made = [20_000 * DAY]
    monkeypatch.setattr(Database, "now", lambda *_: made[0])
    return made


def test_amounts_add_up_by_tenant_and_day(store: RunStore, clock: list[int]) -> None:
    store.spending.add("a", Spending(5, 0.5))
    store.spending.add("b", Spending(7, 0))
    clock[0] += DAY - 1
    store.spending.add("a", Spending(1, 0.25))
    assert store.spending.today("a") == Spending(6, 0.75)
    assert store.spending.today("b") == Spending(7, 0)
    assert store.spending.today("c") == Spending()
    clock[0] += 1
    assert store.spending.today("a") == Spending()
    store.spending.add("a", Spending(2, 0))
    assert store.spending.today("a") == Spending(2, 0)


def test_samples_without_an_outcome_are_paid_for_also_after_their_run_is_deleted(store: RunStore) -> None:
    create(store, samples=2, tenant="a")
    store.runs.set_manifest("run", DatasetManifest(sha256="x"))
    store.runs.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    usage = Usage(prompt_token_count=10, provider_call_count=1)
    store.attempts.add_usage("run", "a", usage)
    run = store.runs.get("run")
    assert run is not None
    assert run.counts.usage == usage
    store.runs.change_state("run", RUN_STATE_CANCELLED, expected=[RUN_STATE_RUNNING])
    store.attempts.begin("run", RERUN_SCOPE_ALL)
    assert not store.attempts.finish("run", 1, [judged(0, {"m": [True]}, tokens=10)])
    assert store.attempts.finish("run", 2, [judged(0, {"m": [True]}, tokens=10)])
    assert not store.attempts.finish("gone", 1, [judged(0, {"m": [True]}, tokens=10)])
    store.attempts.add_usage("gone", "a", usage)
    assert store.spending.today("a").tokens == 30


def test_a_run_counts_on_the_day_of_each_purchase(store: RunStore, clock: list[int]) -> None:
    create(store, samples=2, tenant="a")
    store.runs.set_manifest("run", DatasetManifest(sha256="x"))
    store.runs.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    store.attempts.finish("run", 1, [judged(0, {"m": [True]}, tokens=10)])
    # A sample that is done already costs nothing again.
    store.attempts.finish("run", 1, [judged(0, {"m": [True]}, tokens=10)])
    assert store.spending.today("a").tokens == 10
    clock[0] += DAY
    store.attempts.finish("run", 1, [judged(1, {"m": [True]}, tokens=3)])
    assert store.spending.today("a").tokens == 3
    clock[0] += DAY
    store.runs.change_state("run", RUN_STATE_CANCELLED, expected=[RUN_STATE_RUNNING])
    store.attempts.begin("run", RERUN_SCOPE_ALL, fresh=True)
    store.attempts.finish("run", 2, [judged(0, {"m": [True]}, tokens=4)])
    assert store.spending.today("a").tokens == 4
    store.runs.change_state("run", RUN_STATE_CANCELLED, expected=[RUN_STATE_RUNNING])
    store.runs.delete("run")
    assert store.spending.today("a").tokens == 4


def test_gateways_that_add_at_once_lose_nothing(store: RunStore) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: store.spending.add("a", Spending(number, 0)), range(100)))
    assert store.spending.today("a").tokens == sum(range(100))


def test_a_tenant_of_any_text_is_found_again(store: RunStore) -> None:
    store.spending.add("a\0b", Spending(1, 0))
    store.spending.add("a\0b", Spending(1, 0))
    assert store.spending.today("a\0b").tokens == 2
