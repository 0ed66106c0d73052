"""What those ask who follow a run: what happened, how fast it goes. Part of somebody's transaction."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_RUNNING
from gateway.runs.records import Event
from gateway.runs.store import pace
from gateway.runs.store.runs import THIS
from gateway.runs.store.tables import runs

# Made once: those who follow runs ask all the time.
_NEWEST = sa.select(
    runs.c.state_cursor, runs.c.state_time, runs.c.progress_cursor, runs.c.progress_time
).where(THIS)
_PACE = sa.select(runs.c.pace, runs.c.state).where(THIS)


def events_after(connection: sa.Connection, run_id: str, cursor: int) -> Sequence[Event]:
    """See ``RunStore.events_after``."""
    row = connection.execute(_NEWEST, {"wanted": run_id}).one_or_none()
    if row is None:
        return ()
    events = (
        Event(row.state_cursor, row.state_time, "state"),
        Event(row.progress_cursor, row.progress_time, "progress"),
    )
    return sorted((event for event in events if event.cursor > cursor), key=lambda event: event.cursor)


def rate(connection: sa.Connection, clock: int, run_id: str, seconds: float) -> float | None:
    """See ``RunStore.rate``."""
    row = connection.execute(_PACE, {"wanted": run_id}).one_or_none()
    if row is None or row.state != RUN_STATE_RUNNING:
        return None
    return pace.rate(row.pace, clock, seconds)
