"""Events, throughput and incidents of runs in the tables. Each function is part of a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_PREPARING, RUN_STATE_RUNNING, RunIncident
from gateway.runs.records import Event, Incident
from gateway.runs.store import runs, throughput
from gateway.runs.store.tables import runs as run_table

_MAX_DESCRIPTION_LENGTH = 500
_WORKING = frozenset({RUN_STATE_PREPARING, RUN_STATE_RUNNING})

# Built once: watchers of runs ask continuously.
_NEWEST_EVENTS = sa.select(
    run_table.c.state_cursor,
    run_table.c.state_time,
    run_table.c.progress_cursor,
    run_table.c.progress_time,
).where(runs.IS_WANTED)
_THROUGHPUT = sa.select(run_table.c.throughput, run_table.c.state).where(runs.IS_WANTED)


def events_after(connection: sa.Connection, run_id: str, cursor: int) -> Sequence[Event]:
    """See ``RunStore.events_after``."""
    row = connection.execute(_NEWEST_EVENTS, {"wanted": run_id}).one_or_none()
    if row is None:
        return ()
    events = (
        Event(row.state_cursor, row.state_time, "state"),
        Event(row.progress_cursor, row.progress_time, "progress"),
    )
    return sorted((event for event in events if event.cursor > cursor), key=lambda event: event.cursor)


def rate(connection: sa.Connection, clock: int, run_id: str, seconds: float) -> float | None:
    """See ``RunStore.rate``."""
    row = connection.execute(_THROUGHPUT, {"wanted": run_id}).one_or_none()
    if row is None or row.state != RUN_STATE_RUNNING:
        return None
    return throughput.rate(row.throughput, clock, seconds)


def report_incident(connection: sa.Connection, run_id: str, attempt: int, incident: Incident) -> None:
    """See ``RunStore.report_incident``."""
    run = runs.lock(connection, run_id)
    if run is None or run.attempt != attempt or run.state not in _WORKING:
        return
    now = runs.now()
    stored = RunIncident.FromString(run.incident or b"")
    began = now - timedelta(seconds=incident.lasted)
    # Several gateways report: the incident began with the first of them.
    if not stored.HasField("begin_time") or began < stored.begin_time.ToDatetime(now.tzinfo):
        stored.begin_time.FromDatetime(began)
    stored.description = _line(incident.description)
    stored.failed_attempt_count += incident.failures
    stored.ClearField("next_attempt_time")
    if incident.wait is not None:
        stored.next_attempt_time.FromDatetime(now + timedelta(seconds=incident.wait))
    runs.change(connection, run.number, incident=stored.SerializeToString(), **runs.progress_event(run))


def _line(text: str) -> str:
    """A text from any source as one printable line of bounded length."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= _MAX_DESCRIPTION_LENGTH else f"{line[:_MAX_DESCRIPTION_LENGTH]}..."
