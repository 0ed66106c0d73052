"""Begins runs anew whose conductor ended before them."""

from __future__ import annotations

import logging
from collections.abc import Collection

from dbos import WorkflowStatus

from gateway.runs.engine.failing import fail
from gateway.runs.engine.stalls import Stall
from gateway.runs.engine.threads import Threads
from gateway.runs.engine.workflows import Workflows, error_of
from gateway.runs.records import RunRecord
from gateway.runs.store.base import RunStore

logger = logging.getLogger(__name__)

Attempt = tuple[str, int]
"""A run and its attempt."""


class Reviver:
    """Has such a run conducted again, ever later while no sample of it is done, and fails it in the end.

    What it knows is its process's own: where another gateway comes to look after runs, pauses begin again.

    Args:
        store: The store of runs.
        threads: Where it is called.
        workflows: Where conductors are submitted.
        stall_seconds: How long conductors may fail without a sample done in between.
    """

    def __init__(self, store: RunStore, threads: Threads, workflows: Workflows, stall_seconds: float) -> None:
        self._store = store
        self._threads = threads
        self._workflows = workflows
        self._seconds = stall_seconds
        self._stalls: dict[Attempt, Stall] = {}
        self._pausing: set[Attempt] = set()
        """Those whose last failure was noted, and which were not begun anew since."""

    def keep(self, attempts: Collection[Attempt]) -> None:
        """Forgets all attempts but these."""
        self._stalls = {attempt: stall for attempt, stall in self._stalls.items() if attempt in attempts}
        self._pausing &= set(attempts)

    async def revive(self, run: RunRecord, conductor: WorkflowStatus) -> None:
        """Does what is due for a run that has not ended though its conductor has; called at every look.

        Raises:
            StoreError: The store cannot be used.
        """
        attempt = run.id, run.attempt
        stall = await self._note(run, conductor)
        # What batches that are still worked on do may yet show that the run moves.
        if (reason := stall.reason()) and not await self._is_worked_on(attempt):
            await fail(run, reason, store=self._store, threads=self._threads)
        elif not stall.pause():
            await self._workflows.begin_anew(*attempt)
            self._pausing.discard(attempt)

    async def _note(self, run: RunRecord, conductor: WorkflowStatus) -> Stall:
        attempt = run.id, run.attempt
        stall = self._stalls.setdefault(attempt, Stall(self._seconds, "its conductor fails"))
        done = run.counts.succeeded + run.counts.failed
        if attempt in self._pausing:
            stall.note(done, [])
            return stall
        self._pausing.add(attempt)
        error = error_of(conductor) or f"it ended as {conductor.status}"
        stall.note(done, [error])
        fields = {"run": run.id, "pause": round(stall.pause(), 1)}
        logger.error("the conductor of a run ended before it: %s", error, extra={"fields": fields})
        await self._threads(self._store.report_trouble, *attempt, stall.trouble(1))
        return stall

    async def _is_worked_on(self, attempt: Attempt) -> bool:
        return any(not batch.error for batch in await self._workflows.batches(*attempt))
