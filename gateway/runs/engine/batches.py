"""Evaluates batches of samples in this process, as the run's state and limits allow at every moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from gateway.fair_semaphore import FairSemaphore
from gateway.runs.engine.bells import Bells
from gateway.runs.engine.leases import Gateways
from gateway.runs.engine.parts import Part
from gateway.runs.engine.patient import Patient
from gateway.runs.engine.sampling import Sampler
from gateway.runs.engine.states import is_under_way
from gateway.runs.records import RunRecord
from gateway.runs.store.base import RunStore

logger = logging.getLogger(__name__)


class Worker:
    """What this process evaluates, of all runs.

    Args:
        store: The store of runs.
        patient: Calls it.
        sampler: Evaluates one sample.
        gateways: Tells who else works on runs.
        bells: Ring when something of a run may have changed.
        samples: How many samples it evaluates at once.
        batches: How many batches it works on at once; further ones wait here, as slots are shared.
        look_seconds: How often a run's state is looked at.
    """

    def __init__(
        self,
        *,
        store: RunStore,
        patient: Patient,
        sampler: Sampler,
        gateways: Gateways,
        bells: Bells,
        samples: int,
        batches: int,
        look_seconds: float,
    ) -> None:
        self._store = store
        self._patient = patient
        self._sampler = sampler
        self._gateways = gateways
        self._bells = bells
        self._slots = FairSemaphore(samples)
        self._places = FairSemaphore(batches)
        self._look_seconds = look_seconds
        self._parts: dict[tuple[str, int], Part] = {}
        self._draining = False

    async def evaluate(self, run_id: str, attempt: int, indices: Sequence[int]) -> None:
        """Evaluates those of a run's samples that are still pending, and writes what comes of them.

        What is not begun, since the run is paused or at its budget or the process stops, stays pending.
        """
        part = self._parts.get((run_id, attempt))
        run = await self._wanted(run_id, attempt) if part is None else part.run
        if run is None:
            return
        async with self._places.single(run.tenant, run.spec.limits.priority):
            part = await self._join(run_id, attempt)
            if part is None:
                return
            try:
                await part.evaluate(indices)
            finally:
                self._leave(part)
                self._bells.ring(run_id)

    @property
    def is_busy(self) -> bool:
        """Whether a batch is worked on."""
        return bool(self._parts)

    def stop(self) -> None:
        """Begins no further sample."""
        self._draining = True
        for part in self._parts.values():
            part.stop()

    def cut(self) -> None:
        """Cancels the samples under way; they stay pending."""
        for part in self._parts.values():
            part.cut()

    async def _wanted(self, run_id: str, attempt: int) -> RunRecord | None:
        """A run, where there is something to do for it here."""
        if self._draining:
            return None
        run = await self._patient(self._store.get_run, run_id)
        return run if is_under_way(run, attempt) else None

    async def _join(self, run_id: str, attempt: int) -> Part | None:
        """This process's part in a run, shared by its batches; None where there is nothing to do."""
        run = await self._wanted(run_id, attempt)
        gateways = await self._gateways.peers()
        if run is None or self._draining:
            return None
        # Nothing is awaited from here on, so that two batches make one part.
        part = self._parts.get((run_id, attempt))
        if part is None:
            part = self._parts[run_id, attempt] = Part(
                run,
                store=self._store,
                patient=self._patient,
                sampler=self._sampler,
                slots=self._slots,
                executor=self._gateways.executor,
                gateways=gateways,
                bells=self._bells,
            )
            part.watching = asyncio.create_task(self._watch(part))
        part.batches += 1
        return part

    def _leave(self, part: Part) -> None:
        part.batches -= 1
        if not part.batches:
            part.close()
            self._parts.pop((part.run.id, part.run.attempt), None)

    async def _watch(self, part: Part) -> None:
        """Keeps a part informed of its run, for as long as there is one."""
        with self._bells.listening(part.run.id) as bell:
            while True:
                try:
                    await part.look()
                    part.share_with(await self._gateways.peers())
                except Exception:
                    # Such as an error of the database below DBOS. Unwatched, a part would go on for ever.
                    logger.exception("a run cannot be looked at", extra={"fields": {"run": part.run.id}})
                await bell.wait(self._look_seconds)
