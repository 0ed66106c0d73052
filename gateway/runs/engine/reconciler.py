"""Reconciles the runs of a store with the workflows that execute them, on one gateway at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from dbos import WorkflowStatus

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.database.errors import StoreError
from dramaturg.service.telemetry import instruments
from dramaturg.service.threads import ThreadPool
from gateway.runs.engine import metrics
from gateway.runs.engine.leases import ClusterMembership
from gateway.runs.engine.policy import StallDetector
from gateway.runs.engine.workflows import (
    WORKFLOW_VERSION,
    Attempt,
    WorkflowClient,
    error_of,
    has_current_version,
    version_of,
)
from gateway.runs.records import ACTIVE, RunRecord, is_active_attempt
from gateway.runs.store import RunStore

logger = logging.getLogger(__name__)

_ENDED = frozenset({"SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"})


class RunReconciler:
    """Returns the work of lost gateways to its queues, and starts runs that no workflow executes.

    The first live gateway by id does this for the whole store.

    Args:
        store: The run store.
        threads: Runs store calls.
        workflows: The workflows of all gateways.
        membership: The live gateways.
        stall_timeout_seconds: How long an orchestrator may fail without a completed sample.
    """

    def __init__(
        self,
        store: RunStore,
        threads: ThreadPool,
        workflows: WorkflowClient,
        membership: ClusterMembership,
        stall_timeout_seconds: float,
    ) -> None:
        self._store = store
        self._threads = threads
        self._workflows = workflows
        self._membership = membership
        self._restarter = RunRestarter(store, threads, workflows, stall_timeout_seconds)

    async def run(self, interval_seconds: float) -> None:
        """Reconciles at an interval until cancelled."""
        while True:
            try:
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
        if not self._membership.single:
            await self._requeue_lost()
        runs = await self._threads(self._store.runs.active)
        metrics.show_runs(runs)
        if instruments.counting():
            metrics.show_batches(*await self._workflows.queue_depth())
        attempts = {(run.id, run.attempt) for run in runs}
        self._restarter.retain(attempts)
        orchestrators = await self._workflows.orchestrators(attempts)
        for run in runs:
            await self._check(run, orchestrators.get((run.id, run.attempt)))

    async def _requeue_lost(self) -> None:
        workflows = await self._workflows.in_progress()
        # After the workflows: the owner of a workflow takes its lease before it claims.
        live = await self._membership.live()
        for workflow in workflows:
            if workflow.executor_id in live:
                continue
            fields = {"workflow": workflow.workflow_id, "executor": workflow.executor_id}
            logger.warning("a workflow of a lost gateway is requeued", extra={"fields": fields})
            await self._workflows.requeue(workflow)
            metrics.TAKEOVERS.add()

    async def _check(self, run: RunRecord, orchestrator: WorkflowStatus | None) -> None:
        if orchestrator is None:
            await self._workflows.start_run(run.id, run.attempt)
        elif not has_current_version(orchestrator):
            await self._fail_if_unsupported(run, orchestrator)
        elif orchestrator.status in _ENDED:
            # The run may have ended with it since the runs were listed.
            current = await self._threads(self._store.runs.get, run.id)
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
        await _fail(run, reason, self._store, self._threads)


class RunRestarter:
    """Restarts runs whose orchestrator ended before them, with growing delays, and fails them in the end.

    The failures are known to this process only: another leader counts them anew.

    Args:
        store: The run store.
        threads: Runs store calls.
        workflows: Restarts orchestrators.
        stall_timeout_seconds: How long an orchestrator may fail without a completed sample.
    """

    def __init__(
        self, store: RunStore, threads: ThreadPool, workflows: WorkflowClient, stall_timeout_seconds: float
    ) -> None:
        self._store = store
        self._threads = threads
        self._workflows = workflows
        self._timeout = stall_timeout_seconds
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
            await _fail(run, reason, self._store, self._threads)
        elif not detector.delay():
            await self._workflows.restart_run(*attempt)
            self._recorded.discard(attempt)

    async def _record(self, run: RunRecord, orchestrator: WorkflowStatus) -> StallDetector:
        attempt = run.id, run.attempt
        detector = self._detectors.setdefault(attempt, StallDetector(self._timeout, "its orchestrator fails"))
        if attempt in self._recorded:
            detector.record(run.counts.done, [])
            return detector
        self._recorded.add(attempt)
        error = error_of(orchestrator) or f"it ended as {orchestrator.status}"
        detector.record(run.counts.done, [error])
        fields = {"run": run.id, "delay": round(detector.delay(), 1)}
        logger.error("the orchestrator of a run ended before it: %s", error, extra={"fields": fields})
        await self._threads(self._store.runs.report_incident, *attempt, detector.incident(1))
        return detector

    async def _has_batches(self, attempt: Attempt) -> bool:
        return any(not batch.error for batch in await self._workflows.batches(*attempt))


async def _fail(run: RunRecord, reason: str, store: RunStore, threads: ThreadPool) -> None:
    """Fails the attempt of a run unless it has ended. Its results are kept."""
    failed = run_pb2.RUN_STATE_FAILED
    changed = await threads(
        store.runs.change_state,
        run.id,
        failed,
        expected=ACTIVE,
        attempt=run.attempt,
        reason=reason,
        outcome=run_pb2.RUN_OUTCOME_STALLED,
    )
    if changed:
        metrics.ENDED.add(metrics.state_name(failed))
