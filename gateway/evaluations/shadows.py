"""Shadows: judges that get the requests of other judges and change no verdict."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

from google.protobuf.message import Message

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    CandidateAssessment,
    ScriptsResult,
    ShadowAssessment,
    ShadowMiss,
)
from dramaturg.api.evaluation.v1.texts_pb2 import TextsResult
from dramaturg.judge.usage import add_usage, total_usage
from dramaturg.results.names import shadow_miss_name
from dramaturg.service import context
from dramaturg.service.context import RequestContext
from gateway.evaluations.calls import Timeouts, unnoted
from gateway.evaluations.metrics import SHADOW_MISSES
from gateway.evaluations.streams import Emit
from gateway.judges.selection import JudgeAssignment, Shadow

Result = TypeVar("Result", ScriptsResult, TextsResult)
Assess = Callable[[JudgeAssignment, Emit], Awaitable[object]]
"""Has a shadow assess the candidates; emits each assessment."""
Targets = Mapping[str, MutableSequence[ShadowAssessment]]
"""The lists of a result that assessments of shadows are added to, by candidate."""

logger = logging.getLogger(__name__)

_deferred: ContextVar[list[ShadowCalls] | None] = ContextVar("deferred_shadows", default=None)


@contextmanager
def deferred_shadows() -> Iterator[list[ShadowCalls]]:
    """Collects the calls of shadows that are in progress when an evaluation returns its result.

    The caller calls ``ShadowCalls.finish``, which adds their assessments to the result.
    """
    deferred: list[ShadowCalls] = []
    token = _deferred.set(deferred)
    try:
        yield deferred
    finally:
        _deferred.reset(token)


class ShadowCalls:
    """The calls of the shadows of one evaluation.

    They are made in tasks of their own, with deadlines and request ids of their own: neither their failures
    nor their attempts and waits concern the evaluation.

    Args:
        shadows: The shadows.
        timeouts: The timeouts of judges.
    """

    def __init__(self, shadows: Sequence[Shadow], timeouts: Timeouts) -> None:
        self._shadows = shadows
        self._timeouts = timeouts
        self._calls: list[_ShadowCall] = []
        self._targets: Targets = {}
        self._abandoned = asyncio.Event()
        self.usage = Usage()
        """The usage that counts as that of the evaluation, after ``finish``."""

    def start(self, candidate_ids: Sequence[str], assess: Assess) -> None:
        """Starts a call of each shadow about all candidates."""
        with unnoted():
            for number, shadow in enumerate(self._shadows):
                seconds = shadow.assignment.judge.timeout(self._timeouts.judge)
                self._calls.append(_ShadowCall(shadow, number, candidate_ids, assess, seconds))

    async def beside(
        self, work: Awaitable[Result], targets: Callable[[Result], Targets], wait_seconds: float
    ) -> Result:
        """Returns the result of an evaluation with the assessments of its shadows.

        Args:
            work: The evaluation, which calls ``start``. If it fails, the calls are cancelled.
            targets: The lists of the result that assessments are added to.
            wait_seconds: How long the result waits for the shadows at most. Within ``deferred_shadows`` it
                does not wait, and has no assessments yet.
        """
        try:
            result = await work
        except BaseException:
            self.cancel()
            raise
        if self._calls:
            self._targets = targets(result)
            deferred = _deferred.get()
            if deferred is None:
                left = self._timeouts.left()
                await self.finish(wait_seconds if left is None else min(wait_seconds, left))
                result.usage.CopyFrom(add_usage(result.usage, self.usage))
            else:
                deferred.append(self)
        return result

    async def finish(self, wait_seconds: float | None = None) -> None:
        """Waits for the shadows, cancels the calls in progress, and adds the assessments to the result.

        Args:
            wait_seconds: The longest wait. None: until the deadlines of the shadows, or ``abandon``.
        """
        try:
            if wait_seconds is None or wait_seconds > 0:
                async with asyncio.timeout(wait_seconds):
                    await self._ended()
        except TimeoutError:
            pass
        finally:
            self.cancel()
        self.usage = total_usage(usage for call in self._calls for usage in call.counted_usage())
        for candidate_id, listed in self._targets.items():
            listed.extend(
                call.assessment(candidate_id) for call in self._calls if candidate_id in call.candidate_ids
            )

    async def _ended(self) -> None:
        """Waits for all calls, or for ``abandon``."""
        abandoned = asyncio.create_task(self._abandoned.wait())
        try:
            pending: set[asyncio.Task[Any]] = {call.task for call in self._calls}
            while pending and not abandoned.done():
                _, pending = await asyncio.wait({*pending, abandoned}, return_when=asyncio.FIRST_COMPLETED)
                pending.discard(abandoned)
        finally:
            abandoned.cancel()

    def abandon(self) -> None:
        """Ends the wait of ``finish``."""
        self._abandoned.set()

    def cancel(self) -> None:
        """Cancels the calls."""
        for call in self._calls:
            call.task.cancel()


class _ShadowCall:
    def __init__(
        self,
        shadow: Shadow,
        number: int,
        candidate_ids: Sequence[str],
        assess: Assess,
        seconds: float,
    ) -> None:
        self.candidate_ids = frozenset(candidate_ids)
        self._shadow = shadow
        self._number = number
        self._assess = assess
        self._seconds = seconds
        self._assessed: dict[str, CandidateAssessment] = {}
        self._miss: ShadowMiss.ValueType = scripts_pb2.SHADOW_MISS_LATE
        self.task = asyncio.create_task(self._call())

    def assessment(self, candidate_id: str) -> ShadowAssessment:
        """The assessment of a candidate as it is known now, or the reason for its absence."""
        judge = self._shadow.assignment.judge
        made = ShadowAssessment(role=judge.role.name, judge=judge.name, shadow_of=self._shadow.of)
        assessed = self._assessed.get(candidate_id)
        if assessed is None:
            made.miss = self._miss
            reason = shadow_miss_name(self._miss).lower().replace("_", "-")
            SHADOW_MISSES.add(judge.role.name, judge.name, reason)
        else:
            made.assessment.CopyFrom(assessed.assessment)
            made.latency.CopyFrom(assessed.latency)
        return made

    def counted_usage(self) -> Iterator[Usage]:
        """The usage that counts as that of the evaluation, by candidate."""
        if self._shadow.counted:
            for assessed in self._assessed.values():
                yield assessed.assessment.provenance.usage

    async def _call(self) -> None:
        queue = self._shadow.assignment.judge.shadow_queue
        with nullcontext(True) if queue is None else queue.hold(len(self.candidate_ids)) as fits:
            if not fits:
                self._miss = scripts_pb2.SHADOW_MISS_QUEUE_FULL
                return
            served = context.current()
            # An id of its own: the attempts of model calls are limited by request id.
            request_id = f"{served.request_id if served else ''}/shadow-{self._number}"
            deadline = time.monotonic() + self._seconds
            try:
                with context.scope(RequestContext(request_id, deadline=deadline)):
                    async with asyncio.timeout(self._seconds):
                        await self._assess(self._shadow.assignment, self._emit)
            except TimeoutError:
                return
            except Exception:
                self._miss = scripts_pb2.SHADOW_MISS_FAILED
                logger.exception("a shadow could not be called")

    def _emit(self, **event: Message) -> None:
        assessed = event["assessment"]
        assert isinstance(assessed, CandidateAssessment)
        self._assessed[assessed.candidate_id] = assessed
