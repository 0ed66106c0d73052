"""Makes the records of evaluated samples, writes them in groups, and adds up their usage."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import (
    SAMPLE_STATE_FAILED,
    SAMPLE_STATE_SUCCEEDED,
    RunSample,
    RunSpec,
    SampleError,
)
from dramaturg.judge.provenance import add_usage, provenances_in, total_usage
from dramaturg.results.rows import flatten
from dramaturg.service.errors import ServiceError, status_code
from gateway.evaluations.kinds import run_kind
from gateway.runs.engine.sample_evaluation import SampleEvaluation
from gateway.runs.records import SampleOutcome, SampleWork

logger = logging.getLogger(__name__)

MAX_CRASHES = 5
"""The number of gateway crashes after which a sample fails that was in progress at each."""
GROUP_SECONDS = 0.5
"""The longest wait of an outcome for others."""
GROUP_SIZE = 128
"""The number of outcomes that are written without further wait. Statements of a transaction cost more than
its rows: groups of 32 take twice the processor time for an outcome."""
MAX_UNWRITTEN = 256
"""The number of unwritten outcomes above which ``put`` blocks: the store is slower than the samples."""

Write = Callable[[Sequence[SampleOutcome]], Awaitable[None]]


def outcome_of(sample: SampleWork, spec: RunSpec, evaluation: SampleEvaluation) -> SampleOutcome:
    """The record of an evaluated sample, without its flat judgements."""
    record = _record(sample)
    record.attempt_count = evaluation.attempts
    if evaluation.result is not None:
        record.state = SAMPLE_STATE_SUCCEEDED
        result: Any = getattr(record, run_kind(spec).results.name)
        result.CopyFrom(evaluation.result)
    else:
        assert evaluation.error is not None
        _set_error(record, evaluation.error)
    return SampleOutcome(record, (), evaluation.usage, degraded=evaluation.degraded)


def crash_outcome(sample: SampleWork) -> SampleOutcome | None:
    """The record of a sample that crashes gateways; None if it does not."""
    if sample.crashes < MAX_CRASHES:
        return None
    record = _record(sample)
    message = f"it was in progress at {sample.crashes} crashes of gateways"
    _set_error(record, ServiceError(grpc.StatusCode.ABORTED, error_reason_pb2.ERROR_REASON_INTERNAL, message))
    return SampleOutcome(record, (), Usage())


def flatten_outcome(outcome: SampleOutcome) -> SampleOutcome:
    """The same record with its flat judgements.

    A result that cannot be flattened is a defect of the gateway. It fails the sample, which would otherwise
    be evaluated for ever.
    """
    try:
        return replace(outcome, results=flatten(outcome.sample, texts=False))
    except Exception:
        logger.exception("a result cannot be flattened", extra={"fields": {"sample": outcome.sample.index}})
    record = RunSample()
    record.CopyFrom(outcome.sample)
    record.ClearField("result")
    message = "its result cannot be stored; the log of the gateway has the reason"
    _set_error(
        record, ServiceError(grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_INTERNAL, message)
    )
    return replace(outcome, sample=record)


def _record(sample: SampleWork) -> RunSample:
    record = RunSample(index=sample.index, line=sample.line, sample_id=sample.sample_id, tags=sample.tags)
    record.end_time.FromMicroseconds(time.time_ns() // 1000)
    return record


def _set_error(record: RunSample, error: ServiceError) -> None:
    record.state = SAMPLE_STATE_FAILED
    record.error.CopyFrom(
        SampleError(
            code=status_code(error.code),
            reason=error.reason,
            message=error.message,
            field=error.violations[0].field if error.violations else "",
        )
    )


class PromptTexts:
    """Adds the text of each prompt to the first sample with it, of the samples of a run in this process.

    Args:
        find: Returns the text of a prompt by its SHA-256, or an empty text.
    """

    def __init__(self, find: Callable[[str], str]) -> None:
        self._find = find
        self._added: set[str] = set()

    def add(self, sample: RunSample) -> None:
        """Adds the texts that no sample has yet."""
        for provenance in provenances_in(sample):
            for prompt in provenance.prompts:
                if prompt.sha256 not in self._added and (text := self._find(prompt.sha256)):
                    prompt.text = text
                    self._added.add(prompt.sha256)


class OutcomeWriter:
    """Writes the outcomes of one run in groups, and loses none while the process runs.

    Args:
        write: Writes a group in one transaction and retries until it succeeds.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._unwritten: list[SampleOutcome] = []
        self._put = 0
        self._written = 0
        self._changed = asyncio.Condition()
        self._urgent = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    async def put(self, outcome: SampleOutcome) -> None:
        """Queues an outcome; blocks while too many are unwritten."""
        self._unwritten.append(outcome)
        self._put += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        if len(self._unwritten) >= GROUP_SIZE:
            self._urgent.set()
        if self._error is not None or len(self._unwritten) >= MAX_UNWRITTEN:
            await self._wait_until(lambda: len(self._unwritten) < MAX_UNWRITTEN)

    async def flush(self) -> None:
        """Waits until all queued outcomes are written."""
        put = self._put
        if self._written < put:
            self._urgent.set()
        await self._wait_until(lambda: self._written >= put)

    async def _wait_until(self, done: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._error is not None or done())
        if self._error is not None:
            raise self._error

    async def _run(self) -> None:
        try:
            while self._unwritten:
                with suppress(TimeoutError):
                    async with asyncio.timeout(GROUP_SECONDS):
                        await self._urgent.wait()
                self._urgent.clear()
                group = tuple(self._unwritten)
                await self._write(group)
                async with self._changed:
                    # After the write: until then they count as unwritten.
                    del self._unwritten[: len(group)]
                    self._written += len(group)
                    self._changed.notify_all()
        except Exception as error:
            async with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            self._task = None


class UsageTracker:
    """The usage of a run: that of the store, and that of this process since.

    Usage written while the store is read counts twice until the next refresh, and is never omitted.

    Args:
        stored: The usage in the store.
    """

    def __init__(self, stored: Usage) -> None:
        self.total = stored
        """All known usage."""
        self._since: deque[Usage] = deque()
        self._held: list[Usage] = []
        self._written = 0

    def hold(self, usage: Usage) -> None:
        """Adds the usage of an evaluated sample that is written later, after others."""
        self._held.append(usage)
        self.total = add_usage(self.total, usage)

    def add(self, usage: Usage, held: Usage | None = None) -> None:
        """Adds the usage of a sample that is written next.

        Args:
            usage: The usage.
            held: The part of it that ``hold`` added. None: none. The rest counts from the next refresh.
        """
        self._since.append(usage)
        if held is not None:
            self._held.remove(held)
        else:
            self.total = add_usage(self.total, usage)

    def release(self, held: Usage) -> None:
        """Takes out what ``hold`` added, of a sample that is not written."""
        self._held.remove(held)

    def written(self, count: int) -> None:
        """Notes that the oldest ``count`` added usages were written."""
        self._written += count

    def mark(self) -> int:
        """A position to take before the store is read, for ``refresh``."""
        return self._written

    def refresh(self, stored: Usage, mark: int) -> None:
        """Replaces the stored usage by the one read after ``mark``."""
        for _ in range(mark):
            self._since.popleft()
        self._written -= mark
        self.total = add_usage(stored, total_usage([*self._since, *self._held]))
