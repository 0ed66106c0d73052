"""Evaluations of scripts (ABSEval): one call for the gold answer and one for each judge, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Script
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    CandidateAssessment,
    CandidateResult,
    EvaluateScriptsRequest,
    EvaluateScriptsResponse,
    GoldAnswer,
    ScriptsResult,
)
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion
from dramaturg.judge.batches import encode_candidate
from dramaturg.judge.criteria import ABSEVAL, SATISFIES_CONSTRAINTS
from dramaturg.judge.protocols import USES_REFERENCE
from dramaturg.judge.roles import JudgeRole
from dramaturg.judge.steps import ParsedCandidate
from dramaturg.judge.usage import total_usage
from dramaturg.judge.verdicts import abstained, failed
from dramaturg.results.names import reason_name
from dramaturg.service.concurrency import gather_all
from gateway.evaluations.assessments import AskedCriteria, Assessor
from gateway.evaluations.metrics import Judgement
from gateway.evaluations.panels import decide
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.scripts.gold_answer import find_gold_answer
from gateway.evaluations.scripts.plan import ScriptsPlan
from gateway.evaluations.scripts.reading import read_candidates
from gateway.evaluations.shadows import ShadowCalls
from gateway.evaluations.streams import Emit, Evaluation
from gateway.evaluations.verdict_normalization import expected_criteria, requested_criteria
from gateway.judges.directory import JudgeDirectory
from gateway.processes.pool import ProcessPool

FindGoldAnswer = Callable[[], Awaitable[GoldAnswer | None]]
"""Waits for the gold answer; None where none is wanted."""


class ScriptsEvaluation(Evaluation):
    """The evaluation of one task's candidates.

    Judges that compare with the gold answer wait for it; the others start at once. A judge that fails makes
    its own criteria abstain and does not affect others. Judges do not learn which model wrote a candidate.

    Args:
        plan: The request and its judges.
        directory: The identities of judges.
        scope: What the calls of the evaluation share.
        parsers: The processes that parse long candidates.
    """

    def __init__(
        self, plan: ScriptsPlan, directory: JudgeDirectory, scope: EvaluationScope, parsers: ProcessPool
    ) -> None:
        super().__init__(EvaluateScriptsResponse, plan.accepted)
        self._plan = plan
        self._directory = directory
        self._scope = scope
        self._parsers = parsers
        self._given = plan.request
        self._readings: Sequence[ParsedCandidate] = ()
        self._shadows = ShadowCalls(plan.shadows, scope)

    @staticmethod
    def judgements(result: ScriptsResult) -> Iterator[Judgement]:
        """The verdicts of every judge; those of panels are derived from them and not counted."""
        for candidate in result.candidates:
            for assessed in candidate.assessments:
                for verdict in assessed.assessment.verdicts:
                    yield Judgement(assessed.role, assessed.judge, verdict.outcome, verdict.abstain_reason)

    async def work(self, emit: Emit) -> ScriptsResult:
        """See ``Evaluation.work``."""
        return await self._shadows.beside(
            self._evaluate(emit),
            self._given.shadow_wait.ToNanoseconds() / 1e9,
            targets=lambda result: {
                one.candidate_id: one.shadows for one in result.candidates if one.assessments
            },
        )

    async def _evaluate(self, emit: Emit) -> ScriptsResult:
        readings = await read_candidates(self._plan.request.candidates, self._parsers, self._scope.tenant)
        judged = [place for place, one in enumerate(readings) if one.reading != verdict_pb2.READING_EMPTY]
        if len(judged) < len(readings):
            self._leave_out_empty(judged)
        self._readings = [readings[place] for place in judged]
        if not judged:
            return self._result(None, [])
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

    def _leave_out_empty(self, judged: Sequence[int]) -> None:
        """Keeps the candidates at some places as those that are judged."""
        request = EvaluateScriptsRequest()
        request.CopyFrom(self._plan.request)
        del request.candidates[:]
        request.candidates.extend(self._plan.request.candidates[place] for place in judged)
        self._plan = replace(self._plan, request=request)

    async def _find_gold_answer(self, emit: Emit) -> GoldAnswer | None:
        answer = await find_gold_answer(self._plan, self._readings, self._scope)
        if answer is not None:
            emit(gold_answer=answer)
        return answer

    async def _assess_all(self, find: FindGoldAnswer, emit: Emit) -> Sequence[Sequence[CandidateAssessment]]:
        """The assessments by judge, then by candidate."""
        request = self._plan.request
        candidates = [
            encode_candidate(candidate, read)
            for candidate, read in zip(request.candidates, self._readings, strict=True)
        ]
        assessor = Assessor(request.task, candidates, request, self._directory)

        async def find_reference(role: JudgeRole, identity: Identity | None) -> Script | None:
            if not (role.compares or (identity is not None and USES_REFERENCE in identity.capabilities)):
                return None
            answer = await find()
            return answer.script if answer is not None and answer.script.steps else None

        self._shadows.start(
            [candidate.id for candidate in candidates],
            lambda shadow, scope, emit: assessor.assess(shadow, scope, self._ask, find_reference, emit),
        )
        return await gather_all(
            [
                assessor.assess(assignment, self._scope, self._ask, find_reference, emit)
                for assignment in self._plan.assignments
            ]
        )

    def _ask(self, role: JudgeRole, identity: Identity | None) -> AskedCriteria:
        expected = expected_criteria(role, identity, self._plan.role_criteria)
        requested = [
            Criterion(id=criterion, definition=role.definitions.get(criterion, ""))
            for criterion in requested_criteria(expected, identity)
        ]
        return AskedCriteria(expected, requested)

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
        judged = {
            candidate.id: (reading, [column[index] for column in assessments])
            for index, (candidate, reading) in enumerate(zip(request.candidates, self._readings, strict=True))
        }
        for candidate in self._given.candidates:
            made = result.candidates.add(candidate_id=candidate.id, model=candidate.model)
            made.script.SetInParent()
            if candidate.id not in judged:
                self._fail(made, candidate.failure_reason or verdict_pb2.ABSTAIN_REASON_EMPTY)
                continue
            reading, row = judged[candidate.id]
            made.verdicts.extend(decide(row, ABSEVAL, self._plan.assignments))
            made.assessments.extend(row)
            made.reading = reading.reading
            for text in reading.steps:
                made.script.steps.add(text=text)
        return result

    def _fail(self, made: CandidateResult, reason: AbstainReason.ValueType) -> None:
        """Sets the verdicts on a candidate without a script."""
        made.reading = verdict_pb2.READING_EMPTY
        rationale = f"There is no script: {reason_name(reason).lower()}."
        abstains = self._given.unusable_outputs_abstain
        if not abstains:
            made.failure_reason = reason
        for criterion in self._criteria():
            if abstains:
                made.verdicts.append(abstained(criterion, reason, rationale))
            elif criterion == SATISFIES_CONSTRAINTS and not self._given.task.constraints:
                words = "The task has no constraints."
                made.verdicts.append(abstained(criterion, verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE, words))
            else:
                made.verdicts.append(failed(criterion, rationale=rationale))

    def _criteria(self) -> Sequence[str]:
        """The criteria of all judges: ABSEval's in the order of the paper, then others by name."""
        found = {
            criterion
            for assignment in self._plan.assignments
            if isinstance(assignment.role, JudgeRole)
            for criterion in expected_criteria(
                assignment.role, assignment.judge.identity.known, self._plan.role_criteria
            )
        }
        return [*(name for name in ABSEVAL if name in found), *sorted(found - set(ABSEVAL))]
