"""This process's part in one run: what its batches share."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.service.auth.caller import on_behalf_of
from gateway.fair_semaphore import FairSemaphore
from gateway.runs.engine import metrics, policy
from gateway.runs.engine.bells import Bells
from gateway.runs.engine.outcomes import OutcomeWriter
from gateway.runs.engine.patient import Patient
from gateway.runs.engine.samples import died_too_often, outcome_of, with_judgements
from gateway.runs.engine.sampling import Sampler
from gateway.runs.engine.spending import Spending
from gateway.runs.engine.states import is_under_way
from gateway.runs.engine.supply import Supply
from gateway.runs.engine.troubles import TroubleLog
from gateway.runs.engine.window import share_of
from gateway.runs.records import RunRecord, SampleOutcome, SampleWork
from gateway.runs.store.base import RunStore


class Part:
    """The samples of one attempt at one run that this process evaluates.

    Args:
        run: The run, as last seen.
        store: The store of runs.
        patient: Calls it.
        sampler: Evaluates one sample.
        slots: The slots of this process.
        executor: The name of this process.
        gateways: Those that work on runs, this one among them, sorted.
        bells: Ring when something is written.

    Attributes:
        run: The run, as last seen.
        batches: How many batches share this part.
        watching: Whoever keeps it informed.
    """

    def __init__(
        self,
        run: RunRecord,
        *,
        store: RunStore,
        patient: Patient,
        sampler: Sampler,
        slots: FairSemaphore,
        executor: str,
        gateways: Sequence[str],
        bells: Bells,
    ) -> None:
        self.run = run
        self.batches = 0
        self.watching: asyncio.Task[None] | None = None
        self._attempt = run.attempt
        self._store = store
        self._patient = patient
        self._sampler = sampler
        self._slots = slots
        self._executor = executor
        self._bells = bells
        self._gateways = gateways
        self._share = slots.open_share(run.tenant, 0)
        self._writer = OutcomeWriter(self._write)
        self._spending = Spending(run.counts.usage)
        self._troubles = TroubleLog()
        self._lanes: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._adjust()

    def stop(self) -> None:
        """Begins no further sample."""
        self._stopped = True

    def cut(self) -> None:
        """Cancels the samples under way."""
        self._stopped = True
        for lane in self._lanes:
            lane.cancel()

    def close(self) -> None:
        """Ends it, when no batch is left."""
        if self.watching is not None:
            self.watching.cancel()
        self._slots.close_share(self._share)

    async def look(self) -> None:
        """Looks where the run stands and does what follows from it."""
        with self._spending.looking() as spending:
            run = await self._patient(self._store.get_run, self.run.id)
            spending.known = self.run.counts.usage if run is None else run.counts.usage
        if run is None or not is_under_way(run, self._attempt):
            # It was cancelled, failed or begun anew: what it is asked now would be paid for nothing.
            self.cut()
        else:
            self.run = run
            self._adjust()
            if trouble := self._troubles.report():
                await self._patient(self._store.report_trouble, run.id, self._attempt, trouble)
                self._bells.ring_progress(run.id)

    def share_with(self, gateways: Sequence[str]) -> None:
        """Takes note of the gateways that work on runs, this one among them."""
        self._gateways = gateways
        self._adjust()

    async def evaluate(self, indices: Sequence[int]) -> None:
        """Evaluates a batch; returns when everything that came of it is written."""
        supply = Supply(indices, self._take)
        # No more than can be under way: a task for every sample would hold all of their texts.
        count = min(len(indices), self._share.limit)
        lanes = [asyncio.create_task(self._evaluate_in_turn(supply)) for _ in range(count)]
        self._lanes.update(lanes)
        try:
            ends = await asyncio.gather(*lanes, return_exceptions=True)
        finally:
            for lane in lanes:
                lane.cancel()
            self._lanes.difference_update(lanes)
        await self._writer.flush()
        if supply.left:
            await self._patient(self._store.release_samples, self.run.id, sorted(supply.left))
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _evaluate_in_turn(self, supply: Supply) -> None:
        with on_behalf_of(self.run.tenant), self._troubles.pending.noting():
            while self._may_begin():
                async with self._slots.slot(self._share):
                    if not self._may_begin() or (sample := await supply.next(self._group)) is None:
                        return
                    outcome = await self._outcome(sample)
                self._spending.add(outcome.usage)
                supply.left.discard(sample.index)
                await self._writer.put(outcome)

    @property
    def _group(self) -> int:
        """How many samples are taken at once: a quarter of the slots."""
        return math.ceil(self._share.limit / 4)

    async def _take(self, indices: Sequence[int]) -> Sequence[SampleWork]:
        return await self._patient(self._store.take_samples, self.run.id, indices, self._executor)

    async def _outcome(self, sample: SampleWork) -> SampleOutcome:
        if failure := died_too_often(sample):
            return failure
        spec, offset = self.run.spec, self.run.repeat_offset
        name = f"{self.run.id}/{sample.index}"
        with metrics.sampling(self.run.id, sample.index):
            sampled = await self._sampler.evaluate(sample.request, spec, offset, name, self._troubles)
        return outcome_of(sample, spec, sampled)

    def _may_begin(self) -> bool:
        return (
            not self._stopped
            and self.run.state == run_pb2.RUN_STATE_RUNNING
            and not policy.budget_reached(self.run.spec.budget, self._spending.total)
        )

    def _adjust(self) -> None:
        limits = self.run.spec.limits
        rank = self._gateways.index(self._executor)
        slots = share_of(rank, len(self._gateways), policy.concurrent_samples(limits))
        self._slots.adjust(self._share, slots, limits.priority)

    async def _write(self, outcomes: Sequence[SampleOutcome]) -> None:
        def write() -> None:
            flat = [with_judgements(outcome) for outcome in outcomes]
            self._store.finish_samples(self.run.id, self._attempt, flat)

        begun = time.perf_counter()
        await self._patient(write)
        metrics.WRITE_SECONDS.observe(time.perf_counter() - begun)
        metrics.count_samples(outcomes)
        self._spending.written(len(outcomes))
        self._bells.ring_progress(self.run.id)
