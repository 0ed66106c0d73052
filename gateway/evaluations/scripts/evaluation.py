"""Evaluations of scripts (ABSEval): one call for the gold answer and one for each judge, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.scripts_pb2 import (
    CandidateAssessment,
    EvaluateScriptsResponse,
    GoldAnswer,
    ScriptsResult,
)
from dramaturg.judge import text_pool
from dramaturg.judge.steps import ParsedCandidate, parse_candidate
from dramaturg.judge.usage import total_usage
from gateway.evaluations.calls import Timeouts
from gateway.evaluations.concurrency import gather_all
from gateway.evaluations.metrics import Judgement
from gateway.evaluations.scripts.assessments import Assessor, FindGoldAnswer
from gateway.evaluations.scripts.gold_answer import find_gold_answer
from gateway.evaluations.scripts.panels import decide
from gateway.evaluations.scripts.plan import ScriptsPlan
from gateway.evaluations.streams import Emit, Evaluation
from gateway.judges.directory import JudgeDirectory


class ScriptsEvaluation(Evaluation):
    """The evaluation of one task's candidates.

    Judges that compare with the gold answer wait for it; the others start at once. A judge that fails makes
    its own criteria abstain and does not affect others. Judges do not learn which model wrote a candidate.

    Args:
        plan: The request and its judges.
        directory: The identities of judges.
        timeouts: How long to wait for judges.
    """

    def __init__(self, plan: ScriptsPlan, directory: JudgeDirectory, timeouts: Timeouts) -> None:
        super().__init__(EvaluateScriptsResponse, plan.accepted)
        self._plan = plan
        self._directory = directory
        self._timeouts = timeouts
        self._readings: Sequence[ParsedCandidate] = ()

    @staticmethod
    def judgements(result: ScriptsResult) -> Iterator[Judgement]:
        """The verdicts of every judge; those of panels are derived from them and not counted."""
        for candidate in result.candidates:
            for assessed in candidate.assessments:
                for verdict in assessed.assessment.verdicts:
                    yield Judgement(assessed.role, assessed.judge, verdict.outcome, verdict.abstain_reason)

    async def work(self, emit: Emit) -> ScriptsResult:
        """See ``Evaluation.work``."""
        candidates = self._plan.request.candidates
        length = sum(len(candidate.text) for candidate in candidates)
        self._readings = await text_pool.parse(length, lambda: [*map(parse_candidate, candidates)])
        if self._plan.synthesizer is None:
            answer = await self._find_gold_answer(emit)  # needs no call

            async def find() -> GoldAnswer | None:
                return answer

            return self._result(answer, await self._assess_all(find, emit))
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._find_gold_answer(emit))
            # Shielded: a judge that times out must not cancel it for the others.
            assessed = await self._assess_all(lambda: asyncio.shield(writing), emit)
        return self._result(writing.result(), assessed)

    async def _find_gold_answer(self, emit: Emit) -> GoldAnswer | None:
        answer = await find_gold_answer(self._plan, self._readings, self._timeouts)
        if answer is not None:
            emit(gold_answer=answer)
        return answer

    async def _assess_all(self, find: FindGoldAnswer, emit: Emit) -> Sequence[Sequence[CandidateAssessment]]:
        """The assessments by judge, then by candidate."""
        assessor = Assessor(self._plan, self._readings, self._directory, self._timeouts)
        return await gather_all(
            [assessor.assess(assignment, find, emit) for assignment in self._plan.assignments]
        )

    def _result(
        self, gold_answer: GoldAnswer | None, assessments: Sequence[Sequence[CandidateAssessment]]
    ) -> ScriptsResult:
        request = self._plan.request
        usages = [one.assessment.provenance.usage for column in assessments for one in column]
        if gold_answer is not None:
            usages.append(gold_answer.provenance.usage)
        result = ScriptsResult(
            task=request.task,
            tags=request.tags,
            gold_answer=gold_answer,
            usage=total_usage(usages),
            mechanism=self._plan.mechanism,
        )
        for index, (candidate, reading) in enumerate(zip(request.candidates, self._readings, strict=True)):
            row = [column[index] for column in assessments]
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
