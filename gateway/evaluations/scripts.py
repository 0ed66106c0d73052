"""Scripts (ABSEval): a call a task for the gold answer, and one a candidate and judge, all side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import (
    CandidateAssessment,
    CandidateResult,
    EvaluateScriptsResponse,
    GoldAnswer,
    ScriptsResult,
)
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.judge.protocols import USES_POOL, USES_REFERENCE
from dramaturg.judge.roles import JudgeRole, Question
from dramaturg.judge.steps import read_candidate
from dramaturg.judge.usage import total_usage
from gateway.evaluations.calls import Patience, call_judge, judge_options
from gateway.evaluations.failures import Failure, abstain_all
from gateway.evaluations.gold_answer import find_gold_answer
from gateway.evaluations.panels import decide
from gateway.evaluations.plan import ScriptsPlan
from gateway.evaluations.settling import expected_criteria, settle
from gateway.evaluations.streams import Emit, stream_events
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import Judge
from gateway.judges.selection import Seat


class ScriptsEvaluation:
    """The evaluation of one task's candidates.

    Judges that compare with the gold answer wait for it; the others start at once. A judge that fails makes
    its own criteria abstain and touches nothing else.

    Args:
        plan: What to do.
        directory: Knows who the judges are.
        patience: How long to wait.
    """

    def __init__(self, plan: ScriptsPlan, directory: JudgeDirectory, patience: Patience) -> None:
        self._plan = plan
        self._directory = directory
        self._patience = patience
        # Judges must not know who wrote what.
        self._candidates = [_anonymous(candidate) for candidate in plan.request.candidates]
        self._readings = [read_candidate(candidate) for candidate in self._candidates]

    async def events(self) -> AsyncGenerator[EvaluateScriptsResponse]:
        """Yields that it was accepted, then each event as it comes, then the result.

        Closing it, or cancelling whoever iterates, cancels the calls to the judges.
        """
        yield EvaluateScriptsResponse(accepted=self._plan.accepted())
        async with aclosing(stream_events(self._work)) as events:
            async for event in events:
                yield event

    async def _work(self, emit: Emit[EvaluateScriptsResponse]) -> None:
        async with asyncio.TaskGroup() as group:
            gold_answer = group.create_task(self._find_gold_answer(emit))
            rows = [
                [group.create_task(self._assess(seat, index, gold_answer, emit)) for seat in self._plan.seats]
                for index in range(len(self._candidates))
            ]
        result = self._result(gold_answer.result(), [[task.result() for task in row] for row in rows])
        emit(EvaluateScriptsResponse(result=result))

    async def _find_gold_answer(self, emit: Emit[EvaluateScriptsResponse]) -> GoldAnswer | None:
        answer = await find_gold_answer(self._plan, self._candidates, self._patience)
        if answer is not None:
            emit(EvaluateScriptsResponse(gold_answer=answer))
        return answer

    async def _assess(
        self,
        seat: Seat,
        index: int,
        gold_answer: asyncio.Task[GoldAnswer | None],
        emit: Emit[EvaluateScriptsResponse],
    ) -> CandidateAssessment:
        role, judge = seat.role, seat.judge
        assert isinstance(role, JudgeRole)
        identity = await self._identity(judge)
        capabilities = () if identity is None else identity.capabilities
        reference: Script | None = None
        if role.compares or USES_REFERENCE in capabilities:
            # Shielded: one that gives up waiting must not end the writing for all.
            answer = await asyncio.shield(gold_answer)
            reference = answer.script if answer is not None and answer.script.steps else None
        question = Question(
            task=self._plan.request.task,
            candidate=self._candidates[index],
            reference=reference,
            pool=self._others(index) if USES_POOL in capabilities else (),
            options=judge_options(seat, self._plan.request),
        )
        answered = await call_judge(
            judge,
            lambda timeout: role.ask(judge.channel, question, timeout),
            left=self._patience.left(),
            longest=self._patience.judge,
        )
        criteria = expected_criteria(role, identity)
        if isinstance(answered, Failure):
            assessment = abstain_all(judge.name, role, answered, criteria, identity)
        else:
            assessment = settle(answered, criteria, identity, len(self._readings[index].steps))
        assessment.provenance.registered_name = judge.name
        assessed = CandidateAssessment(
            candidate_id=self._candidates[index].id,
            role=role.name,
            judge=judge.name,
            assessment=assessment,
        )
        emit(EvaluateScriptsResponse(assessment=assessed))
        return assessed

    async def _identity(self, judge: Judge) -> Identity | None:
        """Who a judge is; None where it does not say so in time."""
        try:
            async with asyncio.timeout(self._patience.left()):
                return await self._directory.identity(judge)
        except TimeoutError:
            return None

    def _others(self, index: int) -> Sequence[Candidate]:
        return [*self._candidates[:index], *self._candidates[index + 1 :]]

    def _result(
        self, gold_answer: GoldAnswer | None, rows: Sequence[Sequence[CandidateAssessment]]
    ) -> ScriptsResult:
        request = self._plan.request
        usages = [one.assessment.provenance.usage for row in rows for one in row]
        if gold_answer is not None:
            usages.append(gold_answer.provenance.usage)
        return ScriptsResult(
            task=request.task,
            tags=request.tags,
            candidates=[self._candidate_result(index, row) for index, row in enumerate(rows)],
            gold_answer=gold_answer,
            usage=total_usage(usages),
            mechanism=self._plan.mechanism,
        )

    def _candidate_result(self, index: int, assessments: Sequence[CandidateAssessment]) -> CandidateResult:
        candidate, reading = self._plan.request.candidates[index], self._readings[index]
        return CandidateResult(
            candidate_id=candidate.id,
            model=candidate.model,
            verdicts=decide(assessments),
            assessments=assessments,
            script=Script(steps=[Step(text=text) for text in reading.steps]),
            reading=reading.reading,
        )


def _anonymous(candidate: Candidate) -> Candidate:
    copy = Candidate()
    copy.CopyFrom(candidate)
    copy.ClearField("model")
    return copy
