"""What the work of a run fails of is kept until the work goes on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_PAUSED,
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCEEDED,
    DatasetManifest,
    RunIncident,
    RunLimits,
)
from dramaturg.api.evaluation.v1.run_service_pb2 import RERUN_SCOPE_ALL
from gateway.runs.records import Incident, NewRun
from gateway.runs.store import RequestIdReusedError, RunStore
from tests.support.runs import create, failed, judged, spec


def new(run_id: str, **fields: object) -> NewRun:
    return NewRun(**{"id": run_id, "tenant": "a", "spec": spec(), **fields})  # type: ignore[arg-type]


def test_a_run_is_kept_as_it_was_created(store: RunStore) -> None:
    before = datetime.now(UTC)
    content = b'{"task": {}}\n' * 1000
    wanted = spec(labels={"team": "x"}, models=["m\0", "n"])
    created, is_new = store.runs.create(new("r", spec=wanted, content=content, version="1.2"))
    assert is_new
    found = store.runs.get("r", "a")
    assert found == created
    assert found is not None
    assert found.spec == wanted
    assert (found.state, found.attempt, found.version) == (RUN_STATE_PREPARING, 1, "1.2")
    assert before <= found.create_time <= datetime.now(UTC)
    assert found.start_time is None
    assert store.runs.content("r") == content


def test_a_run_is_another_tenants_secret(store: RunStore) -> None:
    store.runs.create(new("r"))
    assert store.runs.get("r", "b") is None
    assert store.runs.get("r") is not None
    assert not store.runs.page("b", limit=9)


def test_a_request_id_creates_one_run(store: RunStore) -> None:
    first, _ = store.runs.create(new("r", request_id="q", content=b"rows"))
    second, is_new = store.runs.create(new("s", request_id="q", content=b"rows"))
    assert (second.id, is_new) == (first.id, False)
    for other in (
        new("t", request_id="q", content=b"other"),
        new("t", request_id="q", spec=spec(models=["m"])),
    ):
        with pytest.raises(RequestIdReusedError):
            store.runs.create(other)
    # Of another tenant it says nothing, and none is none.
    assert store.runs.create(new("u", request_id="q", tenant="b"))[1]
    assert store.runs.create(new("v"))[1]
    assert store.runs.create(new("w"))[1]


def test_a_request_id_is_bound_to_what_was_asked_for_even_when_the_spec_changed_since(
    store: RunStore,
) -> None:
    store.runs.create(new("r", request_id="q"))
    store.runs.update_spec("r", spec(limits=RunLimits(priority=3)))
    assert store.runs.create(new("s", request_id="q"))[0].id == "r"


def test_runs_are_listed_from_the_newest_by_keys(store: RunStore) -> None:
    for index in range(7):
        store.runs.create(new(f"r{index}", spec=spec(labels={"parity": str(index % 2), "all": "yes"})))
    store.runs.change_state("r3", RUN_STATE_CANCELLED, expected=[RUN_STATE_PREPARING])
    seen: list[str] = []
    before = None
    while page := store.runs.page("a", limit=3, before=before):
        seen += [run.id for run in page]
        before = (page[-1].create_time, page[-1].id)
    assert seen == [f"r{index}" for index in reversed(range(7))]
    odd = store.runs.page("a", limit=9, labels={"parity": "1", "all": "yes"})
    assert [run.id for run in odd] == ["r5", "r3", "r1"]
    assert store.runs.page("a", limit=9, labels={"parity": "1", "all": "no"}) == []
    assert [run.id for run in store.runs.page("a", limit=9, states=[RUN_STATE_CANCELLED])] == ["r3"]
    assert [run.id for run in store.runs.active()] == ["r0", "r1", "r2", "r4", "r5", "r6"]


def test_a_state_changes_only_from_those_expected(store: RunStore) -> None:
    create(store)
    assert store.runs.change_state("run", RUN_STATE_PAUSED, expected=[RUN_STATE_RUNNING]) is None
    assert (
        store.runs.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING], attempt=2) is None
    )
    running = store.runs.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING], attempt=1)
    assert running is not None
    assert running.start_time is not None
    assert running.end_time is None
    done = store.runs.change_state(
        "run", RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING], reason="all done"
    )
    assert done is not None
    assert (done.state, done.state_reason, done.start_time) == (
        RUN_STATE_SUCCEEDED,
        "all done",
        running.start_time,
    )
    assert done.end_time is not None
    assert store.runs.change_state("nobody", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING]) is None


def test_a_spec_is_replaced_only_where_it_is_the_one_expected(store: RunStore) -> None:
    create(store, spec=spec(labels={"a": "1"}))
    old, newer = spec(labels={"a": "1"}), spec(labels={"b": "2"}, limits=RunLimits(max_concurrent_samples=4))
    changed = store.runs.update_spec("run", newer, expected=old)
    assert changed is not None
    assert changed.spec == newer
    assert store.runs.update_spec("run", old, expected=old) is None
    assert store.runs.page("", limit=9, labels={"a": "1"}) == []
    assert len(store.runs.page("", limit=9, labels={"b": "2"})) == 1


def test_events_tell_what_happened_since(store: RunStore) -> None:
    create(store)
    (created,) = store.runs.events_after("run", 0, 10)
    assert created.kind == "state"
    assert store.runs.events_after("run", created.cursor, 10) == []
    store.runs.set_manifest("run", DatasetManifest(row_count=3))
    (progressed,) = store.runs.events_after("run", created.cursor, 10)
    assert progressed.kind == "progress"
    store.runs.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    kinds = [event.kind for event in store.runs.events_after("run", created.cursor, 10)]
    assert kinds == ["progress", "state"]
    cursors = [event.cursor for event in store.runs.events_after("run", 0, 10)]
    assert cursors == sorted(cursors)
    assert not store.runs.events_after("nobody", 0, 10)


def test_labels_that_a_database_cannot_tell_apart_do_not_break_it(store: RunStore) -> None:
    create(store, spec=spec(labels={"a\0": "1", "a\N{REPLACEMENT CHARACTER}": "2"}))
    assert len(store.runs.page("", limit=9)) == 1


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
