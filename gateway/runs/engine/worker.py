"""Evaluates batches of samples in this process, within the state, limits and budget of each run."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.judge.provenance import total_usage
from dramaturg.results.budgets import budget_reached
from dramaturg.service.auth.caller import on_behalf_of
from dramaturg.service.threads import FairSemaphore, Slot, gather_all
from gateway.evaluations.scope import DeferredShadows
from gateway.runs import metrics
from gateway.runs.engine.outcomes import (
    OutcomeWriter,
    PromptTexts,
    UsageTracker,
    crash_outcome,
    flatten_outcome,
    outcome_of,
)
from gateway.runs.engine.parts import EngineParts
from gateway.runs.engine.policy import (
    Conclusion,
    FailFast,
    JudgeWatch,
    batch_until,
    concurrent_samples,
    put_off_seconds,
    slots_of,
    waits_for_judge,
)
from gateway.runs.engine.sample_evaluation import FailureLog, SampleEvaluation
from gateway.runs.records import RunRecord, SampleOutcome, SampleWork, is_active_attempt

logger = logging.getLogger(__name__)


Take = Callable[[Sequence[int]], Awaitable[Sequence[SampleWork]]]


class Worker:
    """Evaluates the batches of all runs that this process claims.

    Args:
        parts: What it shares with the engine.
    """

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._sample_slots = FairSemaphore(parts.settings.max_concurrent_samples)
        # Further batches wait for a fair turn.
        self._batch_slots = FairSemaphore(parts.settings.max_concurrent_batches)
        self._executions: dict[tuple[str, int], LocalRunExecution] = {}
        self._draining = False

    async def evaluate(self, run_id: str, attempt: int, indices: Sequence[int]) -> None:
        """Evaluates the pending ones of a run's samples and writes their outcomes.

        Samples that are not started, because the run is paused, its budget reached or the process stops, stay
        pending.
        """
        execution = self._executions.get((run_id, attempt))
        run = await self._active(run_id, attempt) if execution is None else execution.run
        if run is None:
            return
        async with self._batch_slots.single(run.tenant, run.spec.limits.priority):
            execution = await self._join(run_id, attempt)
            if execution is None:
                return
            try:
                await execution.evaluate(indices)
            finally:
                self._leave(execution)
                self._parts.notifier.notify(run_id)

    @property
    def is_busy(self) -> bool:
        """Whether a batch is in progress."""
        return bool(self._executions)

    def stop(self) -> None:
        """Starts no further sample."""
        self._draining = True
        for execution in self._executions.values():
            execution.stop()

    def cancel(self) -> None:
        """Cancels the samples in progress; they stay pending."""
        for execution in self._executions.values():
            execution.cancel()

    async def _active(self, run_id: str, attempt: int) -> RunRecord | None:
        """The run, if this process is to work on it."""
        if self._draining:
            return None
        run = await self._parts.call(self._parts.store.runs.get, run_id)
        return run if is_active_attempt(run, attempt) else None

    async def _join(self, run_id: str, attempt: int) -> LocalRunExecution | None:
        """The execution that the batches of an attempt share; None if there is nothing to do."""
        run = await self._active(run_id, attempt)
        gateways = await self._parts.membership.peers()
        if run is None or self._draining:
            return None
        # Nothing is awaited from here on, so that two batches share one execution.
        execution = self._executions.get((run_id, attempt))
        if execution is None:
            execution = self._executions[run_id, attempt] = LocalRunExecution(
                run, self._parts, self._sample_slots, gateways
            )
            execution.watcher = asyncio.create_task(self._watch(execution))
        execution.batches += 1
        return execution

    def _leave(self, execution: LocalRunExecution) -> None:
        execution.batches -= 1
        if not execution.batches:
            execution.close()
            self._executions.pop((execution.run.id, execution.run.attempt), None)

    async def _watch(self, execution: LocalRunExecution) -> None:
        """Keeps an execution up to date with its run."""
        with self._parts.notifier.listen(execution.run.id) as listener:
            while True:
                try:
                    await execution.refresh()
                    execution.set_gateways(await self._parts.membership.peers())
                except Exception:
                    # Without refresh an execution would never see that its run was cancelled.
                    logger.exception("a run cannot be read", extra={"fields": {"run": execution.run.id}})
                await listener.wait(self._parts.settings.poll_seconds)


class LocalRunExecution:
    """The samples of one attempt of a run that this process evaluates.

    Args:
        run: The run as last read.
        parts: What it shares with the engine.
        slots: The sample slots of this process.
        gateways: The gateways that execute runs, this one included, sorted.

    Attributes:
        run: The run as last read.
        batches: The number of batches that share this execution.
        watcher: The task that refreshes it.
    """

    def __init__(
        self, run: RunRecord, parts: EngineParts, slots: FairSemaphore, gateways: Sequence[str]
    ) -> None:
        self.run = run
        self.batches = 0
        self.watcher: asyncio.Task[None] | None = None
        self._attempt = run.attempt
        self._parts = parts
        self._store, self._call, self._notifier = parts.store, parts.call, parts.notifier
        self._slots = slots
        self._gateways = gateways
        self._share = slots.open_share(run.tenant, 0)
        self._writer = OutcomeWriter(self._write)
        self._prompts = PromptTexts(parts.evaluator.prompt_text)
        self._usage = UsageTracker(run.counts.usage)
        self._failures = FailureLog()
        self._fail_fast = FailFast(run.spec.policy, run.counts)
        self._judges = JudgeWatch(run.id, lambda seen: parts.call(parts.store.judges.note, run.id, seen))
        self._halted = ""
        self._lanes: set[asyncio.Task[None]] = set()
        self._shadows: set[DeferredShadows] = set()
        """The calls that evaluated samples wait for."""
        self._interrupted: list[Usage] = []
        """The usage of samples without an outcome that is not in the store."""
        self._stopped = False
        self._room = 0
        """The samples in progress that the limits allow."""
        self._most = math.inf
        """Those for which a slow model answers in time."""
        self._slowed = -math.inf
        """When they were last reduced, on the clock of ``time.monotonic``."""
        self._adjust()

    def stop(self) -> None:
        """Starts no further sample, and waits for no shadow."""
        self._stopped = True
        for calls in self._shadows:
            calls.abandon()

    def cancel(self) -> None:
        """Cancels the samples in progress."""
        self.stop()
        for lane in self._lanes:
            lane.cancel()

    def close(self) -> None:
        """Ends the execution after its last batch."""
        if self.watcher is not None:
            self.watcher.cancel()
        self._slots.close_share(self._share)

    async def refresh(self) -> None:
        """Reads the run and applies its state and limits."""
        mark = self._usage.mark()
        run = await self._call(self._store.runs.get, self.run.id)
        self._usage.refresh((run or self.run).counts.usage, mark)
        if run is None or not is_active_attempt(run, self._attempt):
            # Ended or begun again: results of calls in progress would be paid for and dropped.
            self.cancel()
        else:
            if self._halted and self.run.state == run_pb2.RUN_STATE_PAUSED != run.state:
                # Resumed: the next samples are the first ones again.
                self._halted = ""
                self._fail_fast = FailFast(run.spec.policy, run.counts)
            self.run = run
            self._adjust()
            if incident := self._failures.report():
                await self._call(self._store.runs.report_incident, run.id, self._attempt, incident)
                self._notifier.notify_progress(run.id)

    def set_gateways(self, gateways: Sequence[str]) -> None:
        """Sets the gateways that share the run."""
        self._gateways = gateways
        self._adjust()

    async def evaluate(self, indices: Sequence[int]) -> None:
        """Evaluates a batch; returns when all of its outcomes are written."""
        queue = SampleQueue(indices, self._take)
        # As many tasks as can be in progress: one for each sample would hold all of their texts.
        count = min(len(indices), self._room)
        shadowed: set[asyncio.Task[None]] = set()
        lanes = [asyncio.create_task(self._drain(queue, shadowed)) for _ in range(count)]
        self._lanes.update(lanes)
        try:
            ends = await asyncio.gather(*lanes, return_exceptions=True)
            ends += await asyncio.gather(*shadowed, return_exceptions=True)
        finally:
            for task in (*lanes, *shadowed):
                task.cancel()
            self._lanes.difference_update(lanes)
        await self._writer.flush()
        await self._add_interrupted()
        if queue.waiting:
            await self._call(self._store.samples.put_off, self.run.id, queue.waiting)
            self._notifier.notify_progress(self.run.id)
        if queue.left:
            await self._call(self._store.samples.release, self.run.id, sorted(queue.left))
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _drain(self, queue: SampleQueue, shadowed: set[asyncio.Task[None]]) -> None:
        with on_behalf_of(self.run.tenant):
            while self._may_start():
                async with self._slots.slot(self._share) as slot:
                    if not self._may_start() or (sample := await queue.next(self._group_size)) is None:
                        return
                    crashed = crash_outcome(sample)
                    await self._parts.pacer.start(self.run.tenant)
                    evaluated = None if crashed else await self._evaluate_sample(sample, slot)
                    # Until the sample counts for the budget and the policy, no other one takes its slot.
                    conclusion = None if evaluated is None else await self._note_judges(evaluated)
                if evaluated is None:
                    assert crashed is not None
                    await self._record(crashed, queue)
                    continue
                if conclusion is not None and waits_for_judge(conclusion, evaluated.identities):
                    await self._set_aside(evaluated)
                elif evaluated.batch is not None and evaluated.batch.is_pending:
                    await gather_all([calls.finish() for calls in evaluated.shadows])
                    self._put_off(sample, evaluated, queue)
                elif evaluated.shadows:
                    self._usage.hold(evaluated.usage)
                    shadowed.add(asyncio.create_task(self._record_shadowed(sample, evaluated, queue)))
                else:
                    await self._record(outcome_of(sample, self.run.spec, evaluated), queue)
                if conclusion is not None:
                    await self._halt(conclusion)

    async def _note_judges(self, evaluated: SampleEvaluation) -> Conclusion | None:
        """Notes the judges of a sample in the store; returns the reaction of the run, or None."""
        try:
            return await self._judges.record(evaluated.identities)
        except BaseException:  # such as a cancellation of the run
            await self._set_aside(evaluated)
            raise

    async def _set_aside(self, evaluated: SampleEvaluation) -> None:
        """Keeps the usage of a sample that stays pending."""
        for calls in evaluated.shadows:
            calls.abandon()
        await gather_all([calls.finish() for calls in evaluated.shadows])
        self._interrupted.append(
            total_usage([evaluated.usage, *(calls.usage for calls in evaluated.shadows)])
        )

    def _put_off(self, sample: SampleWork, evaluated: SampleEvaluation, queue: SampleQueue) -> None:
        """Has a sample whose model calls wait for batches evaluated again later, and keeps its usage."""
        assert evaluated.batch is not None
        usage = total_usage([evaluated.usage, *(calls.usage for calls in evaluated.shadows)])
        self._interrupted.append(usage)
        # After an answer its next calls wait.
        waits = 1 if usage.provider_call_count else sample.waits + 1
        left = evaluated.batch.until - time.time()
        queue.left.discard(sample.index)
        queue.waiting[sample.index] = (
            waits,
            put_off_seconds(waits, left, self._parts.settings.batch_poll_seconds),
        )

    async def _record_shadowed(
        self, sample: SampleWork, evaluated: SampleEvaluation, queue: SampleQueue
    ) -> None:
        """Records a sample when its shadows have answered. It holds no slot meanwhile."""
        self._shadows.update(evaluated.shadows)
        try:
            if self._stopped:
                for calls in evaluated.shadows:
                    calls.abandon()
            await gather_all([calls.finish() for calls in evaluated.shadows])
        finally:
            self._shadows.difference_update(evaluated.shadows)
        if evaluated.batch is not None and evaluated.batch.is_pending:  # a shadow waits
            self._usage.release(evaluated.usage)
            self._put_off(sample, evaluated, queue)
            return
        usage = total_usage([evaluated.usage, *(calls.usage for calls in evaluated.shadows)])
        outcome = outcome_of(sample, self.run.spec, replace(evaluated, usage=usage))
        await self._record(outcome, queue, held=evaluated.usage)

    async def _record(self, outcome: SampleOutcome, queue: SampleQueue, *, held: Usage | None = None) -> None:
        self._usage.add(outcome.usage, held)
        self._prompts.add(outcome.sample)
        queue.left.discard(outcome.sample.index)
        await self._writer.put(outcome)
        if not self._halted and (reason := self._fail_fast.record(outcome.sample)):
            paused = run_pb2.RUN_STATE_PAUSED
            await self._halt(Conclusion(paused, run_pb2.RUN_OUTCOME_HALTED, reason))

    async def _halt(self, conclusion: Conclusion) -> None:
        """Pauses or ends the run. Samples in progress are finished."""
        if self._halted:
            return
        self._halted = conclusion.reason  # before the call: no sample is started meanwhile
        await self._writer.flush()
        changed = await self._call(
            self._store.runs.change_state,
            self.run.id,
            conclusion.state,
            expected=[run_pb2.RUN_STATE_RUNNING],
            attempt=self._attempt,
            reason=conclusion.reason,
            outcome=conclusion.outcome,
        )
        if changed is not None and conclusion.state == run_pb2.RUN_STATE_FAILED:
            metrics.ENDED.add(metrics.state_name(conclusion.state))
        self._notifier.notify(self.run.id)

    @property
    def _group_size(self) -> int:
        """The samples taken from the store at once: a quarter of the slots."""
        return math.ceil(self._share.limit / 4)

    async def _take(self, indices: Sequence[int]) -> Sequence[SampleWork]:
        return await self._call(
            self._store.samples.take, self.run.id, indices, self._parts.membership.executor_id
        )

    async def _evaluate_sample(self, sample: SampleWork, slot: Slot) -> SampleEvaluation:
        spec, offset = self.run.spec, self.run.repeat_offset
        # It ends in a name of this evaluation: the failed attempts of an earlier one do not count in a rerun.
        request_id = f"{self.run.id}/{sample.index}/{os.urandom(4).hex()}"
        with metrics.track_sample(self.run.id, sample.index):
            evaluated = await self._parts.evaluator.evaluate(
                sample.request,
                spec,
                offset,
                request_id,
                self._failures,
                self._interrupted,
                partial(self._slow_down, slot),
                batch_until(self.run),
            )
        if self._most < math.inf and not evaluated.timed_out:
            self._most += 1
            self._adjust()
        return evaluated

    async def _slow_down(self, slot: Slot, begun: float) -> None:
        """Halves the samples in progress, since a model does not answer for them in time; waits for a turn.

        It halves once for all attempts that were in progress together. Samples that were begun go on before
        others begin.
        """
        fewer = max(1, self._share.used // 2)
        if begun >= self._slowed and fewer < self._share.limit:
            self._most = fewer
            self._slowed = time.monotonic()
            self._adjust()
            fields = {"run": self.run.id, "samples": self._most}
            logger.warning("a model is slow: fewer samples are in progress", extra={"fields": fields})
        await slot.renew()

    def _may_start(self) -> bool:
        return (
            not self._stopped
            and not self._halted
            and self.run.state == run_pb2.RUN_STATE_RUNNING
            and not budget_reached(self.run.spec.budget, self._usage.total)
        )

    def _adjust(self) -> None:
        limits = self.run.spec.limits
        rank = self._gateways.index(self._parts.membership.executor_id)
        slots = slots_of(rank, len(self._gateways), concurrent_samples(limits))
        self._room = slots
        if self._most >= slots:
            self._most = math.inf
        self._slots.adjust(self._share, int(min(slots, self._most)), limits.priority)

    async def _add_interrupted(self) -> None:
        usage = total_usage(self._interrupted)
        self._interrupted.clear()
        if usage != Usage():
            await self._call(self._store.attempts.add_usage, self.run.id, self.run.tenant, usage)
            self._notifier.notify_progress(self.run.id)

    async def _write(self, outcomes: Sequence[SampleOutcome]) -> None:
        def write() -> None:
            flat = [flatten_outcome(outcome) for outcome in outcomes]
            if not self._store.attempts.finish(self.run.id, self._attempt, flat):
                self._interrupted += [outcome.usage for outcome in outcomes]

        started = time.perf_counter()
        await self._call(write)
        metrics.WRITE_SECONDS.observe(time.perf_counter() - started)
        metrics.count_samples(outcomes)
        self._usage.written(len(outcomes))
        self._notifier.notify_progress(self.run.id)


class SampleQueue:
    """The pending samples of a batch, taken from the store in small groups.

    A taken sample counts as started. Small groups keep the number that a crash interrupts close to the number
    that was really in progress.

    Args:
        indices: The samples of the batch.
        take: Takes samples from the store, leaving out those that are not pending.

    Attributes:
        left: The samples that were taken and are not done.
        waiting: The samples whose model calls wait for batches: how often in a row each was found so, and the
            seconds until it is evaluated again.
    """

    def __init__(self, indices: Sequence[int], take: Take) -> None:
        self.left: set[int] = set()
        self.waiting: dict[int, tuple[int, float]] = {}
        self._indices = deque(indices)
        self._taken: deque[SampleWork] = deque()
        self._take = take
        self._taking = asyncio.Lock()

    async def next(self, group_size: int) -> SampleWork | None:
        """The next sample; None at the end.

        Args:
            group_size: The number of samples taken from the store at once.
        """
        if self._taken:
            return self._taken.popleft()
        async with self._taking:
            while not self._taken and self._indices:
                wanted = [self._indices.popleft() for _ in range(min(group_size, len(self._indices)))]
                # Before the call: a caller that is cancelled meanwhile has taken them all the same.
                self.left.update(wanted)
                self._taken.extend(await self._take(wanted))
                self.left.difference_update(set(wanted) - {sample.index for sample in self._taken})
            return self._taken.popleft() if self._taken else None
