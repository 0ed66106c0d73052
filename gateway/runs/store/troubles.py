"""What the work of runs fails of, in the tables. Part of somebody's transaction."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_PREPARING, RUN_STATE_RUNNING, RunTrouble
from gateway.runs.records import Trouble
from gateway.runs.store import runs

_LONGEST_DESCRIPTION = 500
_WORKING = frozenset({RUN_STATE_PREPARING, RUN_STATE_RUNNING})


def report(connection: sa.Connection, run_id: str, attempt: int, trouble: Trouble) -> None:
    """See ``RunStore.report_trouble``."""
    run = runs.lock(connection, run_id)
    if run is None or run.attempt != attempt or run.state not in _WORKING:
        return
    now = runs.now()
    kept = RunTrouble.FromString(run.trouble or b"")
    begun = now - timedelta(seconds=trouble.lasted)
    # Gateways tell of it one after another: it began with the first of them.
    if not kept.HasField("begin_time") or begun < kept.begin_time.ToDatetime(now.tzinfo):
        kept.begin_time.FromDatetime(begun)
    kept.description = _line(trouble.description)
    kept.failed_attempt_count += trouble.failures
    kept.ClearField("next_attempt_time")
    if trouble.wait is not None:
        kept.next_attempt_time.FromDatetime(now + timedelta(seconds=trouble.wait))
    runs.change(connection, run.number, trouble=kept.SerializeToString(), **runs.progress_event(run))


def _line(text: str) -> str:
    """A text of any length, from anybody, as one line that a terminal can show."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= _LONGEST_DESCRIPTION else f"{line[:_LONGEST_DESCRIPTION]}..."
