"""Fails a run that nobody can finish."""

from __future__ import annotations

from dramaturg.api.evaluation.v1 import run_pb2
from gateway.runs.engine import metrics
from gateway.runs.engine.threads import Threads
from gateway.runs.records import ACTIVE, RunRecord
from gateway.runs.store.base import RunStore


async def fail(run: RunRecord, reason: str, *, store: RunStore, threads: Threads) -> None:
    """Ends this attempt at a run, unless it has ended; its results are kept.

    Raises:
        StoreError: The store cannot be used.
    """
    failed = run_pb2.RUN_STATE_FAILED
    if await threads(store.change_state, run.id, failed, expected=ACTIVE, attempt=run.attempt, reason=reason):
        metrics.ENDED.add(metrics.state_name(failed))
