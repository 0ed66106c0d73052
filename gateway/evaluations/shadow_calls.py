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
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.streams import Emit
from gateway.judges.selection import JudgeAssignment, Shadow

Assess = Callable[[JudgeAssignment, EvaluationScope, Emit], Awaitable[object]]
"""Has a shadow assess the candidates in a scope; emits each assessment."""
Judge = Callable[[JudgeAssignment, EvaluationScope], Awaitable[ShadowJudgement]]
"""Has a shadow judge an item in a scope."""

logger = logging.getLogger(__name__)


class ShadowCall(ABC):
    """A call in a task of its own.

    Args:
        shadow: The shadow.
        scope: The scope of the call; it has a deadline.
        items: The items that it takes of the shadow's queue.
    """

    def __init__(self, shadow: Shadow, scope: EvaluationScope, items: int) -> None:
        self._shadow = shadow
        self._scope = scope
        self._items = items
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
            scope, deadline = self._scope, self._scope.deadline
            assert deadline is not None
            try:
                with context.scope(RequestContext(scope.request_id, deadline=deadline)):
                    async with asyncio.timeout(deadline - time.monotonic()):
                        await self._work(self._shadow.assignment)
            except TimeoutError:
                return
            except Exception:
                self._miss = scripts_pb2.SHADOW_MISS_FAILED
                logger.exception("a shadow could not be called")


class AssessmentCall(ShadowCall):
    """A call about the candidates of a task."""

    def __init__(
        self, shadow: Shadow, scope: EvaluationScope, candidate_ids: Sequence[str], assess: Assess
    ) -> None:
        self.candidate_ids = frozenset(candidate_ids)
        self._assess = assess
        self._assessed: dict[str, CandidateAssessment] = {}
        super().__init__(shadow, scope, len(self.candidate_ids))

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
        await self._assess(assignment, self._scope, self._emit)

    def _emit(self, **event: Message) -> None:
        assessed = event["assessment"]
        assert isinstance(assessed, CandidateAssessment)
        self._assessed[assessed.candidate_id] = assessed


class JudgementCall(ShadowCall):
    """A call about one item."""

    def __init__(self, shadow: Shadow, scope: EvaluationScope, item: ShadowJudgement, judge: Judge) -> None:
        self._made = ShadowJudgement()
        self._made.CopyFrom(item)
        assigned = shadow.assignment.judge
        self._made.role, self._made.judge, self._made.shadow_of = assigned.role.name, assigned.name, shadow.of
        self._judge = judge
        super().__init__(shadow, scope, 1)

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
        judged = await self._judge(assignment, self._scope)
        self._made.latency.FromNanoseconds(round((time.perf_counter() - begun) * 1e9))
        self._made.MergeFrom(judged)
