"""Streams the events of a run."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import UTC, datetime

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_RUNNING
from dramaturg.api.evaluation.v1.run_service_pb2 import WatchRunResponse
from gateway.runs.notifications import ChangeNotifier
from gateway.runs.records import ACTIVE, Event, RunRecord
from gateway.runs.service.messages import describe, progress
from gateway.runs.store.base import RunStore
from gateway.runs.store_calls import ServiceCaller

_POLL_SECONDS = 0.5
_MAX_SILENT_SECONDS = 5.0
"""The longest time without a message while a run is running: its throughput changes without events."""
_MAX_EVENTS = 100


Waits = Callable[[], Awaitable[Sequence[str]]]
"""Returns the rate limits that model calls wait for, as text."""


async def watch(
    run: RunRecord,
    cursor: int,
    store: RunStore,
    caller: ServiceCaller,
    notifier: ChangeNotifier,
    waits: Waits | None = None,
) -> AsyncGenerator[WatchRunResponse]:
    """Yields the events after the cursor until the run has ended or is deleted."""
    known = await caller.call(store.events_after, run.id, 0, _MAX_EVENTS)
    # A cursor of another run may be beyond all events of this one.
    cursor = min(cursor, max((event.cursor for event in known), default=0))
    with notifier.listen(run.id, progress=True) as listener:
        sent = time.monotonic()
        while True:
            events = await caller.call(store.events_after, run.id, cursor, _MAX_EVENTS)
            silent = not events and time.monotonic() - sent >= _MAX_SILENT_SECONDS
            if events or (silent and run.state == RUN_STATE_RUNNING):
                found = await caller.call(store.get_run, run.id)
                if found is None:
                    return
                run = found
                # The current run covers all events so far.
                cursor = events[-1].cursor if events else cursor
                sent = time.monotonic()
                response = await caller.call(_response, run, cursor, events, store)
                if waits is not None and run.state == RUN_STATE_RUNNING:
                    shown = response.run.progress if response.HasField("run") else response.progress
                    shown.model_waits.extend(await waits())
                yield response
            elif run.state not in ACTIVE or await caller.call(store.get_run, run.id) is None:
                return
            else:
                await listener.wait(_POLL_SECONDS)


def _response(run: RunRecord, cursor: int, events: Sequence[Event], store: RunStore) -> WatchRunResponse:
    response = WatchRunResponse(cursor=cursor)
    response.event_time.FromDatetime(events[-1].time if events else datetime.now(UTC))
    if any(event.kind == "state" for event in events):
        response.run.CopyFrom(describe(run, store))
    else:
        response.progress.CopyFrom(progress(run, store))
    return response
