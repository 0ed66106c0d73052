"""One call of a shadow: about the candidates of a task, or about one item of a judge of another contract."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext

from google.protobuf.message import Message

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment, ShadowAssessment, ShadowMiss
from dramaturg.api.evaluation.v1.shadows_pb2 import ShadowJudgement
from dramaturg.results.names import shadow_miss_name
from dramaturg.service import context
from dramaturg.service.context import RequestContext
from gateway.evaluations.metrics import SHADOW_MISSES
from gateway.evaluations.streams import Emit
from gateway.judges.selection import JudgeAssignment, Shadow

Assess = Callable[[JudgeAssignment, Emit], Awaitable[object]]
"""Has a shadow assess the candidates; emits each assessment."""
Judge = Callable[[JudgeAssignment], Awaitable[ShadowJudgement]]
"""Has a shadow judge an item."""

logger = logging.getLogger(__name__)


class ShadowCall(ABC):
    """A call in a task of its own.

    Args:
        shadow: The shadow.
        number: Tells apart the calls of the shadows of an evaluation.
        items: The items that it takes of the shadow's queue.
        seconds: The timeout.
    """

    def __init__(self, shadow: Shadow, number: int, items: int, seconds: float) -> None:
        self._shadow = shadow
        self._number = number
        self._items = items
        self._seconds = seconds
        self._miss: ShadowMiss.ValueType = scripts_pb2.SHADOW_MISS_LATE
        self.task = asyncio.create_task(self._call())

    @property
    def counted(self) -> bool:
        """Whether the usage is part of that of the result."""
        return self._shadow.counted

    @abstractmethod
    def usage(self) -> Iterator[Usage]:
        """The usage of the answers."""

    @abstractmethod
    async def _work(self, assignment: JudgeAssignment) -> None:
        """Makes the call and keeps its answers."""

    def _missed(self) -> ShadowMiss.ValueType:
        """The reason for an absent answer, which is counted."""
        judge = self._shadow.assignment.judge
        reason = shadow_miss_name(self._miss).lower().replace("_", "-")
        SHADOW_MISSES.add(judge.role.name, judge.name, reason)
        return self._miss

    async def _call(self) -> None:
        queue = self._shadow.assignment.judge.shadow_queue
        with nullcontext(True) if queue is None else queue.hold(self._items) as fits:
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
                        await self._work(self._shadow.assignment)
            except TimeoutError:
                return
            except Exception:
                self._miss = scripts_pb2.SHADOW_MISS_FAILED
                logger.exception("a shadow could not be called")


class AssessmentCall(ShadowCall):
    """A call about the candidates of a task."""

    def __init__(
        self, shadow: Shadow, number: int, candidate_ids: Sequence[str], assess: Assess, seconds: float
    ) -> None:
        self.candidate_ids = frozenset(candidate_ids)
        self._assess = assess
        self._assessed: dict[str, CandidateAssessment] = {}
        super().__init__(shadow, number, len(self.candidate_ids), seconds)

    def assessment(self, candidate_id: str) -> ShadowAssessment:
        """The assessment of a candidate as it is known now, or the reason for its absence."""
        judge = self._shadow.assignment.judge
        made = ShadowAssessment(role=judge.role.name, judge=judge.name, shadow_of=self._shadow.of)
        assessed = self._assessed.get(candidate_id)
        if assessed is None:
            made.miss = self._missed()
        else:
            made.assessment.CopyFrom(assessed.assessment)
            made.latency.CopyFrom(assessed.latency)
        return made

    def usage(self) -> Iterator[Usage]:
        for assessed in self._assessed.values():
            yield assessed.assessment.provenance.usage

    async def _work(self, assignment: JudgeAssignment) -> None:
        await self._assess(assignment, self._emit)

    def _emit(self, **event: Message) -> None:
        assessed = event["assessment"]
        assert isinstance(assessed, CandidateAssessment)
        self._assessed[assessed.candidate_id] = assessed


class JudgementCall(ShadowCall):
    """A call about one item."""

    def __init__(
        self, shadow: Shadow, number: int, item: ShadowJudgement, judge: Judge, seconds: float
    ) -> None:
        self._made = ShadowJudgement()
        self._made.CopyFrom(item)
        assigned = shadow.assignment.judge
        self._made.role, self._made.judge, self._made.shadow_of = assigned.role.name, assigned.name, shadow.of
        self._judge = judge
        super().__init__(shadow, number, 1, seconds)

    def note_judge_latency(self, seconds: float) -> None:
        """Records the latency of the judge that is shadowed."""
        self._made.judge_latency.FromNanoseconds(round(seconds * 1e9))

    def judgement(self) -> ShadowJudgement:
        """The judgement as it is known now, or the reason for its absence."""
        if self._made.WhichOneof("judgement") is None:
            self._made.miss = self._missed()
        return self._made

    def usage(self) -> Iterator[Usage]:
        if (made := self._made.WhichOneof("judgement")) is not None:
            yield getattr(self._made, made).provenance.usage

    async def _work(self, assignment: JudgeAssignment) -> None:
        begun = time.perf_counter()
        judged = await self._judge(assignment)
        self._made.latency.FromNanoseconds(round((time.perf_counter() - begun) * 1e9))
        self._made.MergeFrom(judged)
