"""Shadows: judges that get the requests of other judges and change no verdict."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import nullcontext
from typing import Any, Literal, Protocol, TypeVar

from google.protobuf.message import Message

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment, ShadowAssessment, ShadowMiss
from dramaturg.api.evaluation.v1.shadows_pb2 import ShadowJudgement
from dramaturg.judge.provenance import add_usage, total_usage
from dramaturg.results.names import shadow_miss_name
from dramaturg.service import context
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.streams import SHADOW_MISSES, Emit
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
                with context.scope(scope.request_context()):
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


class _Result(Protocol):
    """The result of an evaluation."""

    @property
    def usage(self) -> Usage: ...


Result = TypeVar("Result", bound=_Result)
Answer = TypeVar("Answer")
Targets = Mapping[str, MutableSequence[ShadowAssessment]]
"""The lists of a result that assessments of shadows are added to, by candidate."""

_MEMBERS = ("rating", "challenge", "comparison")


class ShadowCalls:
    """The calls of the shadows of one evaluation.

    They are made in tasks of their own, with deadlines and request ids of their own: neither their failures
    nor their attempts and waits concern the evaluation.

    Args:
        shadows: The shadows.
        scope: What the calls of the evaluation share.
    """

    def __init__(self, shadows: Sequence[Shadow], scope: EvaluationScope) -> None:
        self._shadows = shadows
        self._scope = scope
        self._assessments: list[AssessmentCall] = []
        self._judgements: list[JudgementCall] = []
        self._order: dict[JudgementCall, tuple[int, ...]] = {}
        self._items: set[tuple[object, ...]] = set()
        self._targets: Targets = {}
        self._judged: MutableSequence[ShadowJudgement] = []
        self._abandoned = asyncio.Event()
        self.usage = Usage()
        """The usage that counts as that of the evaluation, after ``finish``."""

    @property
    def _calls(self) -> Sequence[ShadowCall]:
        return [*self._assessments, *self._judgements]

    def start(self, candidate_ids: Sequence[str], assess: Assess) -> None:
        """Starts a call of each shadow about all candidates."""
        for number, shadow in enumerate(self._shadows):
            scope = self._scope.of_shadow(number, self._seconds(shadow))
            self._assessments.append(AssessmentCall(shadow, scope, candidate_ids, assess))

    async def judged(
        self,
        assignment: JudgeAssignment,
        judge: Callable[[JudgeAssignment, EvaluationScope], Awaitable[Answer]],
        member: Literal["rating", "challenge", "comparison"],
        place: int = 0,
        **item: str,
    ) -> Answer:
        """Has a judge judge an item, and beside it each of its shadows.

        Args:
            assignment: The assignment of the judge.
            judge: Has a judge judge the item, in the scope of the evaluation or of a shadow. It returns its
                failure as an answer that abstains.
            member: The member of ``ShadowJudgement`` that the answer is.
            place: The place of the item among those of this member in the request, from 0. The judgements of
                a result stand in this order.
            item: The members of ``ShadowJudgement`` that name the item.

        Returns:
            The answer of the judge. It waits for no shadow.
        """

        async def judge_as_shadow(shadow: JudgeAssignment, scope: EvaluationScope) -> ShadowJudgement:
            made: dict[str, Any] = {member: await judge(shadow, scope)}
            return ShadowJudgement(**made)

        calls = []
        for order, shadow in enumerate(self._shadows):
            if shadow.assignment.role != assignment.role or shadow.of != assignment.judge.name:
                continue
            # A judge with several models judges an item several times, its shadow once.
            key = (shadow.assignment, member, *item.values())
            if key in self._items:
                continue
            self._items.add(key)
            scope = self._scope.of_shadow(len(self._judgements), self._seconds(shadow))
            named: dict[str, Any] = {**item}
            call = JudgementCall(shadow, scope, ShadowJudgement(**named), judge_as_shadow)
            self._judgements.append(call)
            self._order[call] = (_MEMBERS.index(member), place, order)
            calls.append(call)
        begun = time.perf_counter()
        answer = await judge(assignment, self._scope)
        for call in calls:
            call.note_judge_latency(time.perf_counter() - begun)
        return answer

    def _seconds(self, shadow: Shadow) -> float:
        return shadow.assignment.judge.timeout(self._scope.timeouts.judge)

    async def beside(
        self,
        work: Awaitable[Result],
        wait_seconds: float,
        *,
        targets: Callable[[Result], Targets] | None = None,
        judged: Callable[[Result], MutableSequence[ShadowJudgement]] | None = None,
    ) -> Result:
        """Returns the result of an evaluation with the judgements of its shadows.

        Args:
            work: The evaluation, which calls ``start`` or ``judged``. If it fails, the calls are cancelled.
            wait_seconds: How long the result waits for the shadows at most. If the scope has ``deferred``,
                it does not wait, and has no judgements yet.
            targets: The lists of the result that assessments of candidates are added to.
            judged: The list of the result that judgements of items are added to.
        """
        try:
            result = await work
        except BaseException:
            self.cancel()
            raise
        if self._calls:
            if targets is not None:
                self._targets = targets(result)
            if judged is not None:
                self._judged = judged(result)
            deferred = self._scope.deferred
            if deferred is None:
                left = self._scope.left()
                await self.finish(wait_seconds if left is None else min(wait_seconds, left))
                result.usage.CopyFrom(add_usage(result.usage, self.usage))
            else:
                deferred.append(self)
        return result

    async def finish(self, wait_seconds: float | None = None) -> None:
        """Waits for the shadows, cancels the calls in progress, and adds their judgements to the result.

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
        self.usage = total_usage(usage for call in self._calls if call.counted for usage in call.usage())
        for candidate_id, listed in self._targets.items():
            listed.extend(
                call.assessment(candidate_id)
                for call in self._assessments
                if candidate_id in call.candidate_ids
            )
        # The order of the calls depends on which answer came first.
        ordered = sorted(self._judgements, key=self._order.__getitem__)
        self._judged.extend(call.judgement() for call in ordered)

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
