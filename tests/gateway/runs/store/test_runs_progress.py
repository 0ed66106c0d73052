"""What the work of a run fails of is kept until the work goes on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PAUSED,
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCEEDED,
    DatasetManifest,
    RunIncident,
)
from dramaturg.api.evaluation.v1.run_service_pb2 import RERUN_SCOPE_ALL
from gateway.runs.records import Incident
from gateway.runs.store import RunStore
from tests.support.runs import create, failed, judged

DOWN = Incident("the judge is down", failures=3, lasted=10.0, wait=5.0)


@pytest.fixture
def running(store: RunStore) -> RunStore:
    """A store with a run that is running."""
    create(store, samples=9)
    store.runs.set_manifest("run", DatasetManifest(sha256="x"))
    store.runs.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    return store


def trouble(store: RunStore) -> RunIncident | None:
    run = store.runs.get("run")
    assert run is not None
    return run.incident


def test_it_is_told_with_its_beginning_its_count_and_the_next_attempt(running: RunStore) -> None:
    assert trouble(running) is None
    last = running.runs.events_after("run", 0, 9)[-1]
    before = datetime.now(UTC)
    running.runs.report_incident("run", 1, DOWN)
    after = datetime.now(UTC)
    kept = trouble(running)
    assert kept is not None
    assert (kept.description, kept.failed_attempt_count) == ("the judge is down", 3)
    assert before <= kept.begin_time.ToDatetime(UTC) + timedelta(seconds=10) <= after
    assert before <= kept.next_attempt_time.ToDatetime(UTC) - timedelta(seconds=5) <= after
    # Whoever watches hears of it.
    (event,) = running.runs.events_after("run", last.cursor, 9)
    assert event.kind == "progress"


def test_what_several_tell_is_counted_together_from_the_first_on(running: RunStore) -> None:
    running.runs.report_incident("run", 1, DOWN)
    first = trouble(running)
    running.runs.report_incident(
        "run", 1, Incident("another\nis \x1b[31mdown", failures=2, lasted=1.0, wait=None)
    )
    kept = trouble(running)
    assert first is not None
    assert kept is not None
    assert kept.begin_time == first.begin_time
    assert (kept.description, kept.failed_attempt_count) == ("another is [31mdown", 5)
    assert not kept.HasField("next_attempt_time")
    running.runs.report_incident("run", 1, replace(DOWN, description="x" * 10_000))
    kept = trouble(running)
    assert kept is not None
    assert len(kept.description) < 600


def test_it_is_over_with_a_sample_that_succeeds_and_is_not_hindered(running: RunStore) -> None:
    running.runs.report_incident("run", 1, DOWN)
    running.attempts.finish("run", 1, [failed(0), replace(judged(1, {"m": [True]}), degraded=True)])
    assert trouble(running) is not None
    running.attempts.finish("run", 1, [failed(2), judged(3, {"m": [True]})])
    assert trouble(running) is None


def test_it_is_over_with_every_change_of_the_state_and_is_not_told_of_runs_that_do_nothing(
    running: RunStore,
) -> None:
    running.runs.report_incident("run", 1, DOWN)
    running.runs.change_state("run", RUN_STATE_PAUSED, expected=[RUN_STATE_RUNNING])
    assert trouble(running) is None
    running.runs.report_incident("run", 1, DOWN)
    assert trouble(running) is None
    running.runs.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PAUSED])
    running.runs.report_incident("run", 2, DOWN)
    assert trouble(running) is None
    running.runs.report_incident("run", 1, DOWN)
    running.runs.change_state("run", RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING])
    assert trouble(running) is None
    running.attempts.begin("run", RERUN_SCOPE_ALL)
    running.runs.report_incident("run", 2, DOWN)
    assert trouble(running) is not None
    running.runs.report_incident("none", 1, DOWN)
