"""Sees a run through: reads its dataset, keeps batches out until no sample is left, and ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunState
from gateway.runs.engine import metrics, policy
from gateway.runs.engine.bells import Bell, Bells
from gateway.runs.engine.leases import Gateways
from gateway.runs.engine.preparing import DatasetReaders, UnreadableDatasetError, unusable
from gateway.runs.engine.stalls import Stall
from gateway.runs.engine.states import is_prepared, is_under_way
from gateway.runs.engine.threads import Threads
from gateway.runs.engine.window import Pace, batch_size, window_size
from gateway.runs.engine.workflows import Batch, Workflows
from gateway.runs.records import RunRecord
from gateway.runs.store.base import RunStore, StoreError

logger = logging.getLogger(__name__)

_LONGEST_STORE_WAIT_SECONDS = 5.0
_PAUSED_LOOK_SECONDS = 2.0


class Conductor:
    """Conducts one attempt at one run. Everything it needs to know is in the store, so it may be begun again.

    Args:
        run_id: The run.
        attempt: The attempt.
        store: The store of runs.
        threads: Where the store is called.
        workflows: Where batches are enqueued.
        gateways: Who works on runs.
        readers: Read its dataset.
        bells: Ring when something of the run may have changed.
        turn: Lets it look, within an ``async with`` block: gateways have many conductors.
        look_seconds: How often it looks without that.
        stall_timeout_seconds: How long its batches may fail without a sample done in between.
    """

    def __init__(
        self,
        run_id: str,
        attempt: int,
        *,
        store: RunStore,
        threads: Threads,
        workflows: Workflows,
        gateways: Gateways,
        readers: DatasetReaders,
        bells: Bells,
        turn: Callable[[], AbstractAsyncContextManager[None]],
        look_seconds: float,
        stall_timeout_seconds: float,
    ) -> None:
        self._id = run_id
        self._attempt = attempt
        self._store = store
        self._threads = threads
        self._workflows = workflows
        self._gateways = gateways
        self._readers = readers
        self._bells = bells
        self._bell = Bell()
        self._turn = turn
        self._look_seconds = look_seconds
        self._stall = Stall(stall_timeout_seconds, "its batches fail")
        self._pace = Pace()
        self._after: int | None = None
        """The last sample that was put into a batch in this round; -1 at its beginning; None: not known."""

    async def conduct(self) -> None:
        """Sees the run through; returns when it has ended or was begun anew."""
        wait = self._look_seconds
        with self._bells.listening(self._id) as self._bell:
            while True:
                try:
                    if not await self._look():
                        await self._workflows.forget_batches(self._id, self._attempt)
                        return
                    wait = self._look_seconds
                except StoreError as error:
                    fields = {"run": self._id}
                    logger.warning("a run waits for the store: %s", error, extra={"fields": fields})
                    wait = min(2 * wait, _LONGEST_STORE_WAIT_SECONDS)
                    await asyncio.sleep(wait)

    async def _look(self) -> bool:
        """Looks once and does what is due; says whether there will be more to do.

        The wait after a look is part of its turn: so conductors that share turns look less often, and the
        store is not asked more for their number.
        """
        async with self._turn():
            run = await self._threads(self._store.get_run, self._id)
            if run is None or not is_under_way(run, self._attempt):
                return False
            if is_prepared(run):
                await self._step(run)
        # After the turn: a run whose dataset is read, or that is paused, takes none from the others.
        if not is_prepared(run):
            await self._prepare(run)
        elif run.state == run_pb2.RUN_STATE_PAUSED:
            # What failed before a pause says nothing of what comes after it.
            self._stall.forget()
            await self._bell.wait(max(_PAUSED_LOOK_SECONDS, self._look_seconds))
        return True

    async def _step(self, run: RunRecord) -> None:
        """Does what is due for a run whose dataset was read."""
        if run.state == run_pb2.RUN_STATE_PREPARING:
            await self._change(run_pb2.RUN_STATE_RUNNING, run_pb2.RUN_STATE_PREPARING)
        elif reason := unusable(run.manifest) or policy.too_many_failed(run.spec.policy, run.counts):
            await self._end(run_pb2.RUN_STATE_FAILED, reason)
        elif run.state != run_pb2.RUN_STATE_PAUSED:
            await self._advance(run)

    async def _prepare(self, run: RunRecord) -> None:
        try:
            await self._readers.read(run)
        except UnreadableDatasetError as error:
            await self._end(run_pb2.RUN_STATE_FAILED, str(error))

    async def _advance(self, run: RunRecord) -> None:
        """Keeps the window full; ends the run when nothing is left."""
        out = await self._ongoing(run)
        # What is still worked on may yet bring a sample.
        if not out and (reason := self._stall.reason()):
            await self._end(run_pb2.RUN_STATE_FAILED, reason)
            return
        exhausted = policy.budget_reached(run.spec.budget, run.counts.usage)
        pause = 0.0 if exhausted else self._stall.pause()
        enqueued = 0 if exhausted or pause else await self._fill(run, out)
        if out or enqueued or pause:
            await self._bell.wait(self._look_seconds)
            return
        # Nothing is out, so every sample that is not done is one that nobody has.
        left = await self._threads(self._store.next_pending, self._id, -1, 1)
        if left and not exhausted:
            self._after = -1
        elif left:
            await self._end(run_pb2.RUN_STATE_PARTIAL, exhausted)
        else:
            await self._conclude()

    async def _ongoing(self, run: RunRecord) -> Sequence[Batch]:
        """The batches that wait or are worked on; takes note of those that failed, and forgets them."""
        batches = await self._workflows.batches(self._id, self._attempt)
        failed = [batch for batch in batches if batch.error]
        self._stall.note(run.counts.succeeded + run.counts.failed, [batch.error for batch in failed])
        if failed:
            fields = {"run": self._id, "batches": len(failed), "pause": round(self._stall.pause(), 1)}
            logger.error("batches failed: %s", failed[-1].error, extra={"fields": fields})
            await self._workflows.forget(failed)
            trouble = self._stall.trouble(len(failed))
            await self._threads(self._store.report_trouble, self._id, self._attempt, trouble)
        return [batch for batch in batches if not batch.error]

    async def _fill(self, run: RunRecord, out: Sequence[Batch]) -> int:
        """Enqueues batches until the window is full; returns how many."""
        if self._after is None:
            # Somebody else may have begun: what is out must not go out twice.
            self._after = max((index for batch in out for index in batch.indices), default=-1)
        self._pace.mark(run.counts.succeeded + run.counts.failed)
        slots = policy.concurrent_samples(run.spec.limits)
        gateways = len(await self._gateways.peers())
        # Where nobody else could take it, a batch need not go through the queue, which is polled.
        put_out = (
            partial(self._workflows.begin_batch, self._bell.ring)
            if gateways == 1
            else self._workflows.enqueue_batch
        )
        size = batch_size(self._pace.rate(), slots, gateways)
        missing = window_size(slots, gateways) - len(out)
        for enqueued in range(missing):
            indices = await self._threads(self._store.next_pending, self._id, self._after, size)
            if not indices:
                return enqueued
            await put_out(self._id, self._attempt, indices)
            self._after = indices[-1]
        return max(0, missing)

    async def _conclude(self) -> None:
        # The counts that were read before may be older than the last results.
        run = await self._threads(self._store.get_run, self._id)
        if run is None:
            return
        given, counts = run.spec.policy, run.counts
        reason = policy.too_many_failed(given, counts) or policy.too_many_abstained(given, counts)
        await self._end(run_pb2.RUN_STATE_FAILED if reason else run_pb2.RUN_STATE_SUCCEEDED, reason)

    async def _end(self, state: RunState.ValueType, reason: str) -> None:
        expected = [run_pb2.RUN_STATE_PREPARING, run_pb2.RUN_STATE_RUNNING]
        if state == run_pb2.RUN_STATE_FAILED:
            expected.append(run_pb2.RUN_STATE_PAUSED)
        if await self._change(state, *expected, reason=reason):
            metrics.ENDED.add(metrics.state_name(state))

    async def _change(
        self, state: RunState.ValueType, *expected: RunState.ValueType, reason: str = ""
    ) -> bool:
        change = self._store.change_state
        changed = await self._threads(
            change, self._id, state, expected=expected, attempt=self._attempt, reason=reason
        )
        self._bells.ring(self._id)
        return changed is not None
