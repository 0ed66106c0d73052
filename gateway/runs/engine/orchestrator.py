"""Executes a run: reads its dataset, keeps batches in flight until no sample is left, and ends it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import DatasetManifest, RunState
from dramaturg.database import StoreError
from dramaturg.datasets import DatasetError
from dramaturg.results.budgets import budget_reached
from dramaturg.service.errors import ServiceError
from dramaturg.service.threads import FairSemaphore, StoppedError, ThreadPool
from gateway.processes.process import OutOfTimeError, ProcessDiedError, ProcessLimits
from gateway.runs import metrics
from gateway.runs.dataset_access import DatasetAccess
from gateway.runs.dataset_process import is_small, sample_reader
from gateway.runs.engine.parts import EngineParts
from gateway.runs.engine.policy import (
    Conclusion,
    StallDetector,
    ThroughputMeter,
    batch_size,
    conclude,
    conclude_early,
    concurrent_samples,
    max_batches_in_flight,
    words_of,
)
from gateway.runs.engine.workflows import Batch
from gateway.runs.notifications import ChangeListener
from gateway.runs.records import RunRecord, is_active_attempt
from gateway.runs.row_reader import read_rows
from gateway.runs.settings import RunsSettings
from gateway.runs.store import RunStore
from gateway.runs.uploads import URI_PREFIX, as_file

logger = logging.getLogger(__name__)

MAX_CONCURRENT_DATASETS = 2
"""The large datasets that one gateway reads at once, and the small ones beside them; of a tenant one each."""
MAX_DEATHS = 3
"""The deaths of a gateway, or of its reader, while it reads a dataset, after which the run fails."""
_STATE_CHECK_SECONDS = 0.5


class UnreadableDatasetError(Exception):
    """The dataset cannot be read. The message has the reason."""


def read_samples(
    run: RunRecord,
    store: RunStore,
    access: DatasetAccess,
    limits: ProcessLimits,
    is_stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Adds each row of a run's dataset to the store, then the manifest. Blocks.

    Rows that the store has are skipped, so that reading may be repeated.

    Args:
        run: The run.
        store: The run store.
        access: The datasets that may be read.
        limits: The limits of the process that reads a large dataset.
        is_stopped: Whether reading is to stop.

    Returns:
        Whether the dataset was read to its end. It is not if the run ended or reading was stopped.

    Raises:
        UnreadableDatasetError: The dataset cannot be read.
        ProcessDiedError: The process that read it died.
        StoreError: The store is unavailable.
    """

    def has_ended() -> bool:
        return is_stopped() or not is_active_attempt(store.runs.get(run.id), run.attempt)

    checked = time.monotonic()
    try:
        with as_file(run.spec, run.tenant, store, access) as (spec, readable):
            content = b"" if spec.dataset.WhichOneof("source") == "uri" else store.runs.content(run.id)
            reader = sample_reader(spec, content, readable, limits, has_ended)
            for group in read_rows(reader):
                store.samples.add(run.id, group)
                if time.monotonic() - checked > _STATE_CHECK_SECONDS:
                    checked = time.monotonic()
                    if has_ended():
                        return False
    except StoppedError:
        return False
    except DatasetError as error:
        raise UnreadableDatasetError(f"the dataset {error}") from error
    except ServiceError as error:
        raise UnreadableDatasetError(f"the dataset cannot be read: {error.message}") from error
    except OutOfTimeError as error:  # it would take as long again
        raise UnreadableDatasetError(f"the dataset cannot be read: {error}") from error
    manifest = DatasetManifest()
    manifest.CopyFrom(reader.manifest)
    if run.spec.dataset.WhichOneof("source") == "dataset_id":
        manifest.uri = f"{URI_PREFIX}{run.spec.dataset.dataset_id}"
    store.runs.set_manifest(run.id, manifest)
    return True


class DatasetIngest:
    """Reads datasets in threads of its own, so that large ones delay neither runs in progress nor small ones.

    Args:
        store: The run store.
        settings: Which datasets may be read, and the limits of a process that reads one.
    """

    def __init__(self, store: RunStore, settings: RunsSettings) -> None:
        self._store = store
        self._access = settings.dataset_access
        self._limits = settings.dataset_limits
        self._threads = ThreadPool(2 * MAX_CONCURRENT_DATASETS)
        self._small, self._large = (FairSemaphore(MAX_CONCURRENT_DATASETS, per_tenant=1) for _ in range(2))
        self._is_closed = threading.Event()
        self._unended: set[str] = set()
        """Runs whose reading ended here without the store's knowledge."""

    async def read(self, run: RunRecord) -> None:
        """Reads the dataset of a run in its fair turn.

        Raises:
            UnreadableDatasetError: The dataset cannot be read, or its reading killed its process three times.
            StoreError: The store is unavailable.
        """
        slots = self._small if await self._threads(self._is_small, run) else self._large
        async with slots.single(run.tenant, run.spec.limits.priority):
            await self._threads(self._read, run)

    def close(self) -> None:
        """Stops reading."""
        self._is_closed.set()
        self._threads.close()

    def _is_small(self, run: RunRecord) -> bool:
        is_inline = run.spec.dataset.WhichOneof("source") == "content"
        return is_inline and is_small(run.spec, self._store.runs.content(run.id))

    def _read(self, run: RunRecord) -> None:
        if run.id in self._unended:
            self._store.runs.end_preparation(run.id)
            self._unended.discard(run.id)
        # A process that dies here leaves the count raised.
        deaths = self._store.runs.begin_preparation(run.id) - 1
        if deaths >= MAX_DEATHS:
            self._end(run.id)
            raise UnreadableDatasetError(
                f"the dataset cannot be read: the process that read it died {deaths} times. "
                "It may need more memory or time than a gateway gives a dataset"
            )
        try:
            access = self._access.of(run.tenant)
            read_samples(run, self._store, access, self._limits, self._is_closed.is_set)
        except ProcessDiedError as error:
            fields = {"run": run.id, "deaths": deaths + 1}
            logger.error("reading a dataset ended its process: %s", error, extra={"fields": fields})
            return
        except BaseException:
            self._end(run.id)
            raise
        self._end(run.id)

    def _end(self, run_id: str) -> None:
        self._unended.add(run_id)
        try:
            self._store.runs.end_preparation(run_id)
        except StoreError as error:
            logger.warning("the end of reading a dataset is recorded later: %s", error)
        else:
            self._unended.discard(run_id)


def manifest_error(manifest: DatasetManifest) -> str:
    """Why no row of a dataset can be evaluated. Empty: at least one can."""
    if manifest.row_count:
        return ""
    rows = manifest.invalid_row_count
    if not rows:
        return "the dataset has no rows"
    first = manifest.row_errors[0]
    where = f"line {first.line}" + (f", {first.field}" if first.field else "")
    which = (
        f"none of the {rows} rows is a valid request; the first"
        if rows > 1
        else "the only row is not a valid request"
    )
    return f"{which}: {where}: {first.description}"


_MAX_STORE_WAIT_SECONDS = 5.0
_PAUSED_POLL_SECONDS = 2.0


class RunOrchestrator:
    """Executes one attempt of one run. Its state is in the store, so that it may be restarted at any time.

    Args:
        run_id: The run.
        attempt: The attempt.
        parts: What it shares with the engine.
        ingest: Reads the dataset.
        turn: Bounds how many orchestrators of this gateway poll at once, within an ``async with`` block.
    """

    def __init__(
        self,
        run_id: str,
        attempt: int,
        parts: EngineParts,
        ingest: DatasetIngest,
        turn: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self._id = run_id
        self._attempt = attempt
        self._store, self._threads, self._workflows = parts.store, parts.threads, parts.workflows
        self._membership, self._notifier = parts.membership, parts.notifier
        self._ingest = ingest
        self._listener = ChangeListener()
        self._turn = turn
        self._poll_seconds = parts.settings.poll_seconds
        self._stall = StallDetector(parts.settings.stall_timeout_seconds, "its batches fail")
        self._throughput = ThroughputMeter()
        self._after: int | None = None
        """The last sample put into a batch in this pass; -1 at its start; None: unknown."""

    async def run(self) -> None:
        """Executes the attempt until it has ended or a newer one began."""
        wait = self._poll_seconds
        with self._notifier.listen(self._id) as self._listener:
            while True:
                try:
                    if not await self._poll():
                        await self._workflows.delete_completed_batches(self._id, self._attempt)
                        return
                    wait = self._poll_seconds
                except StoreError as error:
                    fields = {"run": self._id}
                    logger.warning("a run waits for the store: %s", error, extra={"fields": fields})
                    wait = min(2 * wait, _MAX_STORE_WAIT_SECONDS)
                    await asyncio.sleep(wait)

    async def _poll(self) -> bool:
        """Reads the run and takes the next step; returns whether the attempt continues.

        The wait after a step belongs to the turn: orchestrators that share turns poll less often, and the
        load on the store does not grow with their number.
        """
        async with self._turn():
            run = await self._threads(self._store.runs.get, self._id)
            if run is None or not is_active_attempt(run, self._attempt):
                return False
            if run.is_prepared:
                await self._step(run)
        # Outside of the turn: a run whose dataset is read, or that is paused, holds up no other.
        if not run.is_prepared:
            await self._prepare(run)
        elif run.state == run_pb2.RUN_STATE_PAUSED:
            # Failures before a pause are irrelevant after it.
            self._stall.reset()
            await self._listener.wait(max(_PAUSED_POLL_SECONDS, self._poll_seconds))
        return True

    async def _step(self, run: RunRecord) -> None:
        if run.state == run_pb2.RUN_STATE_PREPARING:
            running = Conclusion(run_pb2.RUN_STATE_RUNNING, run_pb2.RUN_OUTCOME_UNSPECIFIED, "")
            await self._change_state(running, run_pb2.RUN_STATE_PREPARING)
        elif reason := manifest_error(run.manifest):
            await self._end(Conclusion(run_pb2.RUN_STATE_FAILED, run_pb2.RUN_OUTCOME_DATASET_INVALID, reason))
        elif conclusion := conclude_early(run.spec.policy, run.counts):
            await self._end(conclusion)
        elif run.state != run_pb2.RUN_STATE_PAUSED:
            await self._advance(run)

    async def _prepare(self, run: RunRecord) -> None:
        try:
            await self._ingest.read(run)
        except UnreadableDatasetError as error:
            await self._end(
                Conclusion(run_pb2.RUN_STATE_FAILED, run_pb2.RUN_OUTCOME_DATASET_INVALID, str(error))
            )

    async def _advance(self, run: RunRecord) -> None:
        """Keeps enough batches in flight; ends the run when no sample is left."""
        in_flight = await self._batches_in_flight(run)
        # A batch in progress may still complete a sample.
        if not in_flight and (reason := self._stall.reason()):
            await self._end(Conclusion(run_pb2.RUN_STATE_FAILED, run_pb2.RUN_OUTCOME_STALLED, reason))
            return
        exhausted = budget_reached(run.spec.budget, run.counts.usage)
        delay = 0.0 if exhausted else self._stall.delay()
        started = 0 if exhausted or delay else await self._fill(run, in_flight)
        if in_flight or started or delay:
            await self._listener.wait(self._poll_seconds)
            return
        # Nothing is in flight, so each pending sample belongs to no batch.
        left = await self._threads(self._store.samples.next_pending, self._id, -1, 1)
        pending = partial(self._store.samples.next_pending, put_off=True)
        waits = left or await self._threads(pending, self._id, -1, 1)
        if left and not exhausted:
            self._after = -1
        elif waits and not exhausted:
            self._after = -1
            await self._listener.wait(self._poll_seconds)
        elif waits:
            await self._end(
                Conclusion(run_pb2.RUN_STATE_PARTIAL, run_pb2.RUN_OUTCOME_BUDGET_REACHED, exhausted)
            )
        else:
            await self._conclude()

    async def _batches_in_flight(self, run: RunRecord) -> Sequence[Batch]:
        """The batches that wait or are in progress. Records those that failed, and deletes them."""
        batches = await self._workflows.batches(self._id, self._attempt)
        failed = [batch for batch in batches if batch.error]
        self._stall.record(run.counts.done, [batch.error for batch in failed])
        if failed:
            fields = {"run": self._id, "batches": len(failed), "delay": round(self._stall.delay(), 1)}
            logger.error("batches failed: %s", failed[-1].error, extra={"fields": fields})
            await self._workflows.delete_batches(failed)
            incident = self._stall.incident(len(failed))
            await self._threads(self._store.runs.report_incident, self._id, self._attempt, incident)
        return [batch for batch in batches if not batch.error]

    async def _fill(self, run: RunRecord, in_flight: Sequence[Batch]) -> int:
        """Starts batches until enough are in flight; returns how many."""
        if self._after is None:
            # Another gateway may have started the run: its samples in flight must not be started twice.
            self._after = max((index for batch in in_flight for index in batch.indices), default=-1)
        self._throughput.record(run.counts.done)
        slots = concurrent_samples(run.spec.limits)
        gateways = len(await self._membership.peers())
        # A gateway without peers bypasses the queue, which is polled.
        start = (
            partial(self._workflows.start_batch, self._listener.notify)
            if gateways == 1
            else self._workflows.enqueue_batch
        )
        size = batch_size(self._throughput.rate(), slots, gateways)
        missing = max_batches_in_flight(slots, gateways) - len(in_flight)
        for started in range(missing):
            indices = await self._threads(self._store.samples.next_pending, self._id, self._after, size)
            if not indices:
                return started
            await start(self._id, self._attempt, indices)
            self._after = indices[-1]
        return max(0, missing)

    async def _conclude(self) -> None:
        # The counts read before may be older than the last results.
        run = await self._threads(self._store.runs.get, self._id)
        if run is None:
            return
        conclusion = conclude(run.spec.policy, run.counts)
        if conclusion.outcome != run_pb2.RUN_OUTCOME_JUDGED:
            gold_answer = conclusion.outcome == run_pb2.RUN_OUTCOME_GOLD_ANSWERS_MISSING
            example = await self._threads(
                self._store.results.unjudged_sample, self._id, gold_answer=gold_answer
            )
            conclusion = conclude(run.spec.policy, run.counts, words_of(example, gold_answer=gold_answer))
        await self._end(conclusion)

    async def _end(self, conclusion: Conclusion) -> None:
        expected = [run_pb2.RUN_STATE_PREPARING, run_pb2.RUN_STATE_RUNNING]
        if conclusion.state == run_pb2.RUN_STATE_FAILED:
            expected.append(run_pb2.RUN_STATE_PAUSED)
        if await self._change_state(conclusion, *expected):
            metrics.ENDED.add(metrics.state_name(conclusion.state))

    async def _change_state(self, to: Conclusion, *expected: RunState.ValueType) -> bool:
        changed = await self._threads(
            self._store.runs.change_state,
            self._id,
            to.state,
            expected=expected,
            attempt=self._attempt,
            reason=to.reason,
            outcome=to.outcome,
        )
        self._notifier.notify(self._id)
        return changed is not None
