"""Streams the events of a run."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_RUNNING
from dramaturg.api.evaluation.v1.run_service_pb2 import WatchRunResponse
from gateway.runs.notifications import ChangeNotifier
from gateway.runs.records import ACTIVE, Event, RunRecord
from gateway.runs.service.messages import describe, progress
from gateway.runs.store import RunStore
from gateway.runs.store_calls import ServiceCaller, not_found

_POLL_SECONDS = 0.5
_MAX_SILENT_SECONDS = 5.0
"""The longest time without a message while a run is running: its throughput changes without events."""
_MAX_IDLE_SECONDS = 20.0
"""The longest time without a message in the other states: proxies cut streams that are silent for longer."""
_MAX_EVENTS = 100


Waits = Callable[[], Awaitable[Sequence[str]]]
"""Returns the rate limits that model calls wait for, as text."""


class _Step(NamedTuple):
    """What a watcher is told next, if anything, and the run at that moment."""

    run: RunRecord
    cursor: int
    response: WatchRunResponse | None


async def watch(
    run_id: str,
    tenant: str,
    cursor: int,
    store: RunStore,
    caller: ServiceCaller,
    notifier: ChangeNotifier,
    waits: Waits | None = None,
) -> AsyncGenerator[WatchRunResponse]:
    """Yields the events after the cursor until the run has ended or is deleted.

    A step is one call of the store. The watch of a run that has ended is one step.

    Raises:
        ServiceError: NOT_FOUND: the run does not exist, or belongs to another tenant.
    """
    with notifier.listen(run_id, progress=True) as listener:
        sent = time.monotonic()
        step = await caller.call(_first_step, run_id, tenant, cursor, store)
        while step is not None:
            run, cursor, response = step
            if response is not None:
                sent = time.monotonic()
                if waits is not None and run.state == RUN_STATE_RUNNING:
                    shown = response.run.progress if response.HasField("run") else response.progress
                    shown.model_waits.extend(await waits())
                yield response
            if run.state not in ACTIVE:
                return
            if response is None:
                await listener.wait(_POLL_SECONDS)
            longest = _MAX_SILENT_SECONDS if run.state == RUN_STATE_RUNNING else _MAX_IDLE_SECONDS
            is_due = time.monotonic() - sent >= longest
            step = await caller.call(_step, run_id, cursor, is_due, store)


def _first_step(run_id: str, tenant: str, cursor: int, store: RunStore) -> _Step | None:
    run = store.runs.get(run_id, tenant)
    if run is None:
        raise not_found("run", run_id)
    if run.state in ACTIVE:
        return _step(run_id, cursor, False, store)
    return _told(run, store.runs.events_after(run_id, 0, _MAX_EVENTS), cursor, False, store)


def _step(run_id: str, cursor: int, is_due: bool, store: RunStore) -> _Step | None:
    """The next step of a watcher. None: the run does not exist. Blocks.

    Args:
        run_id: The run.
        cursor: The cursor of the last response. One of another run may be beyond all events of this one.
        is_due: Whether the progress is due without an event.
        store: The run store.
    """
    known = store.runs.events_after(run_id, 0, _MAX_EVENTS)
    run = store.runs.get(run_id)
    if run is not None and run.state not in ACTIVE:
        # Those until its end.
        known = store.runs.events_after(run_id, 0, _MAX_EVENTS)
    return None if run is None else _told(run, known, cursor, is_due, store)


def _told(run: RunRecord, known: Sequence[Event], cursor: int, is_due: bool, store: RunStore) -> _Step | None:
    """The step of a run that was read after its events, or has ended."""
    if not known:
        return None
    newest = known[-1]
    events = [event for event in known if event.cursor > cursor]
    if not events and not is_due:
        return _Step(run, min(cursor, newest.cursor), None)
    response = WatchRunResponse(cursor=newest.cursor)
    response.event_time.FromDatetime(newest.time if events else datetime.now(UTC))
    # The run covers the events.
    if any(event.kind == "state" for event in events):
        response.run.CopyFrom(describe(run, store))
    else:
        response.progress.CopyFrom(progress(run, store))
    return _Step(run, newest.cursor, response)
