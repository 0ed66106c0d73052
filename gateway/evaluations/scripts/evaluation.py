"""Scripts (ABSEval): a call a task for the gold answer, and one a candidate and judge, all side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from dramaturg.api.common.v1.script_pb2 import Candidate, Script
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import (
    CandidateAssessment,
    EvaluateScriptsResponse,
    GoldAnswer,
    ScriptsResult,
)
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.judge.protocols import USES_POOL, USES_REFERENCE
from dramaturg.judge.roles import JudgeRole, Question
from dramaturg.judge.steps import parse_candidate
from dramaturg.judge.usage import total_usage
from gateway.evaluations.calls import Timeouts, call_judge, judge_options
from gateway.evaluations.concurrency import gather_all
from gateway.evaluations.failures import Failure, abstain_all
from gateway.evaluations.scripts.gold_answer import find_gold_answer
from gateway.evaluations.scripts.panels import decide
from gateway.evaluations.scripts.plan import ScriptsPlan
from gateway.evaluations.scripts.verdict_normalization import expected_criteria, normalize
from gateway.evaluations.streams import Emit, Evaluation
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import Judge
from gateway.judges.selection import JudgeAssignment

Find = Callable[[], Awaitable[GoldAnswer | None]]
"""Waits for the gold answer; None where none is wanted."""


class ScriptsEvaluation(Evaluation):
    """The evaluation of one task's candidates.

    Judges that compare with the gold answer wait for it; the others start at once. A judge that fails makes
    its own criteria abstain and touches nothing else.

    Args:
        plan: What to do.
        directory: Knows who the judges are.
        timeouts: How long to wait.
    """

    def __init__(self, plan: ScriptsPlan, directory: JudgeDirectory, timeouts: Timeouts) -> None:
        super().__init__(EvaluateScriptsResponse, plan.accepted)
        self._plan = plan
        self._directory = directory
        self._timeouts = timeouts
        # Judges must not know who wrote what.
        self._candidates = [_anonymous(candidate) for candidate in plan.request.candidates]
        self._readings = [parse_candidate(candidate) for candidate in self._candidates]

    async def work(self, emit: Emit) -> ScriptsResult:
        """See ``Evaluation.work``."""
        if self._plan.synthesizer is None:
            answer = await self._find_gold_answer(emit)  # nobody is asked for it

            async def find() -> GoldAnswer | None:
                return answer

            return self._result(answer, await self._assess_all(find, emit))
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._find_gold_answer(emit))
            # Shielded: one that gives up waiting must not end the writing for all.
            assessed = await self._assess_all(lambda: asyncio.shield(writing), emit)
        return self._result(writing.result(), assessed)

    async def _find_gold_answer(self, emit: Emit) -> GoldAnswer | None:
        answer = await find_gold_answer(self._plan, self._candidates, self._timeouts)
        if answer is not None:
            emit(gold_answer=answer)
        return answer

    async def _assess_all(self, find: Find, emit: Emit) -> Sequence[CandidateAssessment]:
        """The assessments of all candidates, by candidate, then by assignment."""
        indices = range(len(self._candidates))
        return await gather_all(
            [
                self._assess(assignment, index, find, emit)
                for index in indices
                for assignment in self._plan.assignments
            ]
        )

    async def _assess(
        self, assignment: JudgeAssignment, index: int, find: Find, emit: Emit
    ) -> CandidateAssessment:
        role, judge = assignment.role, assignment.judge
        assert isinstance(role, JudgeRole)
        identity = self._directory.known(judge) or await self._identity(judge)
        capabilities = () if identity is None else identity.capabilities
        reference: Script | None = None
        if role.compares or USES_REFERENCE in capabilities:
            answer = await find()
            reference = answer.script if answer is not None and answer.script.steps else None
        question = Question(
            task=self._plan.request.task,
            candidate=self._candidates[index],
            reference=reference,
            pool=self._others(index) if USES_POOL in capabilities else (),
            options=judge_options(assignment, self._plan.request),
        )
        answered = await call_judge(
            judge,
            lambda timeout: role.ask(judge.channel, question, timeout),
            left=self._timeouts.left(),
            longest=self._timeouts.judge,
        )
        criteria = expected_criteria(role, identity)
        if isinstance(answered, Failure):
            assessment = abstain_all(judge.name, role, answered, criteria, identity)
        else:
            assessment = normalize(answered, criteria, identity, len(self._readings[index].steps))
        assessment.provenance.registered_name = judge.name
        assessed = CandidateAssessment(
            candidate_id=self._candidates[index].id,
            role=role.name,
            judge=judge.name,
            assessment=assessment,
        )
        emit(assessment=assessed)
        return assessed

    async def _identity(self, judge: Judge) -> Identity | None:
        """Who a judge is; None where it does not say so in time."""
        try:
            async with asyncio.timeout(self._timeouts.left()):
                return await self._directory.identity(judge)
        except TimeoutError:
            return None

    def _others(self, index: int) -> Sequence[Candidate]:
        return [*self._candidates[:index], *self._candidates[index + 1 :]]

    def _result(
        self, gold_answer: GoldAnswer | None, assessments: Sequence[CandidateAssessment]
    ) -> ScriptsResult:
        request = self._plan.request
        usages = [one.assessment.provenance.usage for one in assessments]
        if gold_answer is not None:
            usages.append(gold_answer.provenance.usage)
        result = ScriptsResult(
            task=request.task,
            tags=request.tags,
            gold_answer=gold_answer,
            usage=usages[0] if len(usages) == 1 else total_usage(usages),
            mechanism=self._plan.mechanism,
        )
        assignments = len(self._plan.assignments)
        for index, (candidate, reading) in enumerate(zip(request.candidates, self._readings, strict=True)):
            row = assessments[index * assignments : (index + 1) * assignments]
            made = result.candidates.add(
                candidate_id=candidate.id,
                model=candidate.model,
                verdicts=decide(row),
                assessments=row,
                reading=reading.reading,
            )
            made.script.SetInParent()
            for text in reading.steps:
                made.script.steps.add(text=text)
        return result


def _anonymous(candidate: Candidate) -> Candidate:
    if not candidate.model:
        return candidate
    copy = Candidate()
    copy.CopyFrom(candidate)
    copy.ClearField("model")
    return copy
