"""Recovers the work of gateways that ended, and starts runs that no workflow executes.

Runs are reconciled with the workflows that execute them on one gateway at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from dbos import WorkflowStatus

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.database import StoreError
from dramaturg.service.telemetry import instruments
from gateway.runs import metrics
from gateway.runs.engine.parts import EngineParts
from gateway.runs.engine.policy import StallDetector
from gateway.runs.engine.workflows import (
    WORKFLOW_VERSION,
    Attempt,
    error_of,
    has_current_version,
    version_of,
)
from gateway.runs.records import ACTIVE, RunRecord, is_active_attempt

logger = logging.getLogger(__name__)

_ENDED = frozenset({"SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"})


class RunReconciler:
    """Returns the work of lost gateways to its queues, and starts runs that no workflow executes.

    The first live gateway by id starts runs, for the whole store.

    Args:
        parts: What it shares with the engine.
    """

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._workflows, self._membership = parts.workflows, parts.membership
        self._restarter = RunRestarter(parts)

    async def run(self, interval_seconds: float) -> None:
        """Reconciles at an interval until cancelled."""
        while True:
            try:
                await self.take_over()
                if await self._membership.is_leader():
                    await self.reconcile()
                else:
                    self.clear_metrics()
            except StoreError as error:
                logger.warning("runs cannot be reconciled: %s", error)
            except Exception:
                # For example an error of the database below DBOS, which may have recovered at the next pass.
                logger.exception("runs cannot be reconciled")
            await asyncio.sleep(interval_seconds)

    def clear_metrics(self) -> None:
        """Sets the gauges of the whole store to 0: another gateway reports them, or nothing is left."""
        metrics.show_runs([])
        metrics.show_batches(0, 0)

    async def reconcile(self) -> None:
        """Makes one pass over all active runs."""
        runs = await self._parts.threads(self._parts.store.runs.active)
        metrics.show_runs(runs)
        if instruments.counting():
            metrics.show_batches(*await self._workflows.queue_depth())
        attempts = {(run.id, run.attempt) for run in runs}
        self._restarter.retain(attempts)
        orchestrators = await self._workflows.orchestrators(attempts)
        for run in runs:
            await self._check(run, orchestrators.get((run.id, run.attempt)))

    async def take_over(self) -> None:
        """Returns the work of lost gateways to its queues, on the first live gateway of their version."""
        if self._membership.single or (await self._membership.peers())[0] != self._membership.executor_id:
            return
        owners = await self._workflows.owners()
        # After the owners: a gateway takes its lease before it claims.
        live = await self._membership.live()
        lost = {executor_id: count for executor_id, count in owners.items() if executor_id not in live}
        if lost:
            logger.warning("the work of lost gateways is taken over", extra={"fields": {"executors": lost}})
            await self._workflows.recover(list(lost))
            metrics.TAKEOVERS.add(amount=sum(lost.values()))

    async def _check(self, run: RunRecord, orchestrator: WorkflowStatus | None) -> None:
        if orchestrator is None:
            await self._workflows.start_run(run.id, run.attempt)
        elif not has_current_version(orchestrator):
            await self._fail_if_unsupported(run, orchestrator)
        elif orchestrator.status in _ENDED:
            # The run may have ended with it since the runs were listed.
            current = await self._parts.threads(self._parts.store.runs.get, run.id)
            if current is not None and is_active_attempt(current, run.attempt):
                await self._restarter.restart(current, orchestrator)

    async def _fail_if_unsupported(self, run: RunRecord, orchestrator: WorkflowStatus) -> None:
        """Fails a run of another workflow version that no live gateway has."""
        versions = {version_of(executor_id) for executor_id in await self._membership.live()}
        if orchestrator.app_version in versions:
            return
        reason = (
            f"it was started with workflow version {orchestrator.app_version}; the live gateways have "
            f"version {WORKFLOW_VERSION} and cannot finish it. Its results are kept; rerun the missing "
            "samples"
        )
        await _fail(run, reason, self._parts)


class RunRestarter:
    """Restarts runs whose orchestrator ended before them, with growing delays, and fails them in the end.

    The failures are known to this process only: another leader counts them anew.

    Args:
        parts: What it shares with the engine.
    """

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._detectors: dict[Attempt, StallDetector] = {}
        self._recorded: set[Attempt] = set()
        """Attempts whose last failure is recorded and that were not restarted since."""

    def retain(self, attempts: Collection[Attempt]) -> None:
        """Forgets all attempts but these."""
        self._detectors = {
            attempt: detector for attempt, detector in self._detectors.items() if attempt in attempts
        }
        self._recorded &= set(attempts)

    async def restart(self, run: RunRecord, orchestrator: WorkflowStatus) -> None:
        """Restarts a run whose orchestrator ended, if its delay is over. Called at each pass.

        Raises:
            StoreError: The store is unavailable.
        """
        attempt = run.id, run.attempt
        detector = await self._record(run, orchestrator)
        # A batch in progress may still complete a sample.
        if (reason := detector.reason()) and not await self._has_batches(attempt):
            await _fail(run, reason, self._parts)
        elif not detector.delay():
            await self._parts.workflows.restart_run(*attempt)
            self._recorded.discard(attempt)

    async def _record(self, run: RunRecord, orchestrator: WorkflowStatus) -> StallDetector:
        attempt = run.id, run.attempt
        timeout = self._parts.settings.stall_timeout_seconds
        detector = self._detectors.setdefault(attempt, StallDetector(timeout, "its orchestrator fails"))
        if attempt in self._recorded:
            detector.record(run.counts.done, [])
            return detector
        self._recorded.add(attempt)
        error = error_of(orchestrator) or f"it ended as {orchestrator.status}"
        detector.record(run.counts.done, [error])
        fields = {"run": run.id, "delay": round(detector.delay(), 1)}
        logger.error("the orchestrator of a run ended before it: %s", error, extra={"fields": fields})
        await self._parts.threads(self._parts.store.runs.report_incident, *attempt, detector.incident(1))
        return detector

    async def _has_batches(self, attempt: Attempt) -> bool:
        return any(not batch.error for batch in await self._parts.workflows.batches(*attempt))


async def _fail(run: RunRecord, reason: str, parts: EngineParts) -> None:
    """Fails the attempt of a run unless it has ended. Its results are kept."""
    failed = run_pb2.RUN_STATE_FAILED
    changed = await parts.threads(
        parts.store.runs.change_state,
        run.id,
        failed,
        expected=ACTIVE,
        attempt=run.attempt,
        reason=reason,
        outcome=run_pb2.RUN_OUTCOME_STALLED,
    )
    if changed:
        metrics.ENDED.add(metrics.state_name(failed))
