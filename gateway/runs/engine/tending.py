"""Looks after runs that nobody works on: their gateway died, or they were never submitted."""

from __future__ import annotations

import asyncio
import logging

from dbos import WorkflowStatus

from dramaturg.service.telemetry import instruments
from gateway.runs.engine import metrics
from gateway.runs.engine.database import CONTRACT, contract_of
from gateway.runs.engine.failing import fail
from gateway.runs.engine.leases import Gateways
from gateway.runs.engine.reviving import Reviver
from gateway.runs.engine.states import is_under_way
from gateway.runs.engine.threads import Threads
from gateway.runs.engine.workflows import Workflows, is_ours
from gateway.runs.records import RunRecord
from gateway.runs.store.base import RunStore, StoreError

logger = logging.getLogger(__name__)

_ENDED = frozenset({"SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"})


class Tender:
    """Looks after all runs of a store. One gateway does, the first by name.

    Args:
        store: The store.
        threads: Where it is called.
        workflows: What is under way.
        gateways: Who lives.
        reviver: Begins runs anew whose conductor ended before them.
    """

    def __init__(
        self,
        store: RunStore,
        threads: Threads,
        workflows: Workflows,
        gateways: Gateways,
        reviver: Reviver,
    ) -> None:
        self._store = store
        self._threads = threads
        self._workflows = workflows
        self._gateways = gateways
        self._reviver = reviver

    async def tend(self, every_seconds: float) -> None:
        """Looks for ever, every so often."""
        while True:
            try:
                if await self._gateways.leads():
                    await self.look()
                else:
                    self.rest()
            except StoreError as error:
                logger.warning("runs cannot be looked after: %s", error)
            except Exception:
                # Such as an error of the database below DBOS: the next look may find it well again.
                logger.exception("runs cannot be looked after")
            await asyncio.sleep(every_seconds)

    def rest(self) -> None:
        """Leaves it to another gateway to tell how much there is to do, or there is nothing."""
        metrics.show_runs([])
        metrics.show_batches(0, 0)

    async def look(self) -> None:
        """Puts the work of gateways that are gone back into its queues, and submits runs that have none."""
        if not self._gateways.alone:
            await self._take_back()
        runs = await self._threads(self._store.active_runs)
        metrics.show_runs(runs)
        if instruments.counting():
            metrics.show_batches(*await self._workflows.queued_batches())
        attempts = {(run.id, run.attempt) for run in runs}
        self._reviver.keep(attempts)
        conductors = await self._workflows.conductors(attempts)
        for run in runs:
            await self._check(run, conductors.get((run.id, run.attempt)))

    async def _take_back(self) -> None:
        under_way = await self._workflows.under_way()
        # Afterwards: whoever began something after this look was not there for an earlier one.
        live = await self._gateways.live()
        for workflow in under_way:
            if workflow.executor_id in live:
                continue
            fields = {"workflow": workflow.workflow_id, "executor": workflow.executor_id}
            logger.warning("the work of a gateway that is gone is taken over", extra={"fields": fields})
            await self._workflows.take_back(workflow)
            metrics.TAKEOVERS.add()

    async def _check(self, run: RunRecord, conductor: WorkflowStatus | None) -> None:
        if conductor is None:
            await self._workflows.begin(run.id, run.attempt)
        elif not is_ours(conductor):
            await self._refuse(run, conductor)
        elif conductor.status in _ENDED:
            # It may have ended since the runs were listed, and the run with it.
            current = await self._threads(self._store.get_run, run.id)
            if current is not None and is_under_way(current, run.attempt):
                await self._reviver.revive(current, conductor)

    async def _refuse(self, run: RunRecord, conductor: WorkflowStatus) -> None:
        """Fails a run that another version of the workflows began, where nobody is left who has it."""
        versions = {contract_of(executor) for executor in await self._gateways.live()}
        if conductor.app_version in versions:
            return
        reason = (
            f"it was begun by a gateway whose runs have version {conductor.app_version}; those that are left "
            f"have version {CONTRACT} and cannot finish it. Its results are kept; rerun what is missing"
        )
        await fail(run, reason, store=self._store, threads=self._threads)
