"""Follows what happens to a run."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_RUNNING
from dramaturg.api.evaluation.v1.run_service_pb2 import WatchRunResponse
from gateway.runs.engine.bells import Bells
from gateway.runs.records import ACTIVE, Event, RunRecord
from gateway.runs.service.background import Background
from gateway.runs.service.encoding import describe, progress
from gateway.runs.store.base import RunStore

_POLL_SECONDS = 0.5
_SILENT_SECONDS = 5.0
"""The longest that whoever watches a running run hears nothing: its rate changes while nothing happens."""
_EVENTS = 100


async def watch(
    run: RunRecord, cursor: int, store: RunStore, background: Background, bells: Bells
) -> AsyncGenerator[WatchRunResponse]:
    """Yields what happens after the cursor, until the run has ended or is deleted."""
    known = await background.call(store.events_after, run.id, 0, _EVENTS)
    # A cursor of another run may be beyond all that ever happens to this one.
    cursor = min(cursor, max((event.cursor for event in known), default=0))
    with bells.listening(run.id, progress=True) as bell:
        told = time.monotonic()
        while True:
            events = await background.call(store.events_after, run.id, cursor, _EVENTS)
            silent = not events and time.monotonic() - told >= _SILENT_SECONDS
            if events or (silent and run.state == RUN_STATE_RUNNING):
                found = await background.call(store.get_run, run.id)
                if found is None:
                    return
                run = found
                # What the run is now tells all that came before.
                cursor = events[-1].cursor if events else cursor
                told = time.monotonic()
                yield await background.call(_respond, run, cursor, events, store)
            elif run.state not in ACTIVE or await background.call(store.get_run, run.id) is None:
                return
            else:
                await bell.wait(_POLL_SECONDS)


def _respond(run: RunRecord, cursor: int, events: Sequence[Event], store: RunStore) -> WatchRunResponse:
    response = WatchRunResponse(cursor=cursor)
    response.event_time.FromDatetime(events[-1].time if events else datetime.now(UTC))
    if any(event.kind == "state" for event in events):
        response.run.CopyFrom(describe(run, store))
    else:
        response.progress.CopyFrom(progress(run, store))
    return response
