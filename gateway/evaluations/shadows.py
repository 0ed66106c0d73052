"""Shadows: judges that get the requests of other judges and change no verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableSequence, Sequence
from typing import Any, Literal, Protocol, TypeVar

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.scripts_pb2 import ShadowAssessment
from dramaturg.api.evaluation.v1.shadows_pb2 import ShadowJudgement
from dramaturg.judge.usage import add_usage, total_usage
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.shadow_calls import Assess, AssessmentCall, JudgementCall, ShadowCall
from gateway.judges.selection import JudgeAssignment, Shadow


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
