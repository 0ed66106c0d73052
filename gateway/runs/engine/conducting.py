"""Sees a run through: reads its dataset, keeps batches out until no sample is left, and ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunState
from gateway.runs.datasets import DatasetAccess
from gateway.runs.engine import metrics, policy
from gateway.runs.engine.bells import Bell
from gateway.runs.engine.leases import Gateways
from gateway.runs.engine.preparing import UnreadableDatasetError, read_samples, unusable
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
        access: What may be read as a dataset.
        bell: Rings when something of the run may have changed.
        look_seconds: How often it looks without that.
        stall_seconds: How long its batches may fail without a sample done in between.
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
        access: DatasetAccess,
        bell: Bell,
        look_seconds: float,
        stall_seconds: float,
    ) -> None:
        self._id = run_id
        self._attempt = attempt
        self._store = store
        self._threads = threads
        self._workflows = workflows
        self._gateways = gateways
        self._access = access
        self._bell = bell
        self._look_seconds = look_seconds
        self._stall = Stall(stall_seconds)
        self._pace = Pace()
        self._after: int | None = None
        """The last sample that was put into a batch in this round; -1 at its beginning; None: not known."""

    async def conduct(self) -> None:
        """Sees the run through; returns when it has ended or was begun anew."""
        wait = self._look_seconds
        while True:
            try:
                if not await self._step():
                    await self._workflows.forget_batches(self._id, self._attempt)
                    return
                wait = self._look_seconds
            except StoreError as error:
                logger.warning("a run waits for the store: %s", error, extra={"fields": {"run": self._id}})
                wait = min(2 * wait, _LONGEST_STORE_WAIT_SECONDS)
                await asyncio.sleep(wait)

    async def _step(self) -> bool:
        """Looks once and does what is due; says whether there will be more to do."""
        run = await self._threads(self._store.get_run, self._id)
        if run is None or not is_under_way(run, self._attempt):
            return False
        if not is_prepared(run):
            await self._prepare(run)
            return True
        if run.state == run_pb2.RUN_STATE_PREPARING:
            await self._change(run_pb2.RUN_STATE_RUNNING, run_pb2.RUN_STATE_PREPARING)
            return True
        if reason := unusable(run.manifest):
            await self._end(run_pb2.RUN_STATE_FAILED, reason)
            return True
        if reason := policy.too_many_failed(run.spec.policy, run.counts):
            await self._end(run_pb2.RUN_STATE_FAILED, reason)
            return True
        if run.state == run_pb2.RUN_STATE_PAUSED:
            await self._bell.wait(max(_PAUSED_LOOK_SECONDS, self._look_seconds))
            return True
        return await self._advance(run)

    async def _prepare(self, run: RunRecord) -> None:
        try:
            await self._threads(read_samples, run, self._store, self._access)
        except UnreadableDatasetError as error:
            await self._end(run_pb2.RUN_STATE_FAILED, str(error))

    async def _advance(self, run: RunRecord) -> bool:
        """Keeps the window full; ends the run when nothing is left. Says whether there will be more to do."""
        out = await self._ongoing(run)
        # What is still worked on may yet bring a sample.
        if not out and (reason := self._stall.reason()):
            await self._end(run_pb2.RUN_STATE_FAILED, reason)
            return True
        exhausted = policy.budget_reached(run.spec.budget, run.counts.usage)
        pause = 0.0 if exhausted else self._stall.pause()
        enqueued = 0 if exhausted or pause else await self._fill(run, out)
        if out or enqueued or pause:
            await self._bell.wait(self._look_seconds)
            return True
        # Nothing is out, so every sample that is not done is one that nobody has.
        left = await self._threads(self._store.next_pending, self._id, -1, 1)
        if left and not exhausted:
            self._after = -1
        elif left:
            await self._end(run_pb2.RUN_STATE_PARTIAL, exhausted)
        else:
            await self._conclude()
        return True

    async def _ongoing(self, run: RunRecord) -> Sequence[Batch]:
        """The batches that wait or are worked on; takes note of those that failed, and forgets them."""
        batches = await self._workflows.batches(self._id, self._attempt)
        failed = [batch for batch in batches if batch.error]
        self._stall.note(run.counts.succeeded + run.counts.failed, [batch.error for batch in failed])
        if failed:
            fields = {"run": self._id, "batches": len(failed), "pause": round(self._stall.pause(), 1)}
            logger.error("batches failed: %s", failed[-1].error, extra={"fields": fields})
            await self._workflows.forget(failed)
        return [batch for batch in batches if not batch.error]

    async def _fill(self, run: RunRecord, out: Sequence[Batch]) -> int:
        """Enqueues batches until the window is full; returns how many."""
        if self._after is None:
            # Somebody else may have begun: what is out must not go out twice.
            self._after = max((index for batch in out for index in batch.indices), default=-1)
        self._pace.mark(run.counts.succeeded + run.counts.failed)
        slots = policy.concurrent_samples(run.spec.limits)
        gateways = len(await self._gateways.peers())
        size = batch_size(self._pace.rate(), slots, gateways)
        missing = window_size(slots, gateways) - len(out)
        for enqueued in range(missing):
            indices = await self._threads(self._store.next_pending, self._id, self._after, size)
            if not indices:
                return enqueued
            await self._workflows.enqueue_batch(self._id, self._attempt, indices)
            self._after = indices[-1]
        return max(0, missing)

    async def _conclude(self) -> None:
        # The counts that were read before may be older than the last results.
        run = await self._threads(self._store.get_run, self._id)
        if run is None:
            return
        failed = policy.too_many_failed(run.spec.policy, run.counts)
        if reason := failed or policy.too_many_abstained(run.spec.policy, run.counts):
            await self._end(run_pb2.RUN_STATE_FAILED, reason)
        else:
            await self._end(run_pb2.RUN_STATE_SUCCEEDED, "")

    async def _end(self, state: RunState.ValueType, reason: str) -> None:
        expected = [run_pb2.RUN_STATE_PREPARING, run_pb2.RUN_STATE_RUNNING]
        if state == run_pb2.RUN_STATE_FAILED:
            expected.append(run_pb2.RUN_STATE_PAUSED)
        if await self._change(state, *expected, reason=reason):
            metrics.ENDED.add(metrics.state_name(state))
        self._bell.ring()

    async def _change(
        self, state: RunState.ValueType, *expected: RunState.ValueType, reason: str = ""
    ) -> bool:
        changed = await self._threads(
            self._store.change_state,
            self._id,
            state,
            expected=expected,
            attempt=self._attempt,
            reason=reason,
        )
        return changed is not None
