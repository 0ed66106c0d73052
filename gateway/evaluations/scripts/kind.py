"""The kind ``scripts`` (ABSEval): one call for the gold answer and one for each judge, side by side.

Models under test of a run write scripts before they are judged. The gold answer is that of section 3.2; its
ablations are those of Table 3 and Figure 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.script_pb2 import Candidate, Script
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    GOLD_ANSWER_SOURCE_GIVEN,
    GOLD_ANSWER_SOURCE_NONE,
    GOLD_ANSWER_SOURCE_POOLED,
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
from dramaturg.judge.provenance import total_usage
from dramaturg.judge.roles import AUTHOR, COMMONSENSE, CRITIC, EXECUTE, SCRIPT_JUDGE, SYNTHESIZE, JudgeRole
from dramaturg.judge.steps import ParsedCandidate
from dramaturg.judge.verdicts import abstained, failed
from dramaturg.kinds.scripts import SCRIPTS
from dramaturg.results.names import reason_name
from gateway.evaluations.assessments import AskedCriteria, Assessed, Assessor, ReferencePendingError
from gateway.evaluations.calls import ask, judge_options
from gateway.evaluations.failures import Failure
from gateway.evaluations.kind import WRITTEN_CHARACTERS, PlannedCalls, RunKind, text_length
from gateway.evaluations.panels import decide
from gateway.evaluations.scope import EvaluationContext, EvaluationScope
from gateway.evaluations.scripts.authorship import (
    add_scripts,
    placeholders,
    select_author,
    write_scripts,
)
from gateway.evaluations.scripts.plan import ScriptsPlan, plan_scripts
from gateway.evaluations.scripts.reading import read_candidates
from gateway.evaluations.scripts.summary import ScriptsKindSummary
from gateway.evaluations.shadows import ShadowCalls
from gateway.evaluations.streams import Emit, Evaluation, Judgement, Plan
from gateway.evaluations.verdict_normalization import expected_criteria, requested_criteria
from gateway.judges.selection import JudgeAssignment, counted_shadows


async def find_gold_answer(
    plan: ScriptsPlan, readings: Sequence[ParsedCandidate], scope: EvaluationScope
) -> GoldAnswer | None:
    """The gold answer: that of the request, or one that the synthesizer writes; None where none is wanted.

    A gold answer that could not be written has a ``failure``. It is not an error: the candidates are judged
    without it.

    Args:
        plan: The evaluation.
        readings: The candidates as they were read, in order.
        scope: What the calls of the evaluation share.
    """
    if plan.synthesizer is not None:
        pooled = plan.source == scripts_pb2.GOLD_ANSWER_SOURCE_POOLED
        pool = [
            _anonymous(candidate)
            for candidate, read in zip(plan.request.candidates, readings, strict=True)
            if pooled and read.reading != verdict_pb2.READING_EMPTY
        ]
        answer = await _write(plan.synthesizer, plan.request, pool, scope)
    elif plan.source == scripts_pb2.GOLD_ANSWER_SOURCE_GIVEN:
        answer = GoldAnswer(script=plan.request.gold_answer)
    else:
        return None
    answer.source = plan.source
    return answer


async def _write(
    assignment: JudgeAssignment,
    request: EvaluateScriptsRequest,
    pool: Sequence[Candidate],
    scope: EvaluationScope,
) -> GoldAnswer:
    question = SynthesizeRequest(
        task=request.task, candidates=pool, options=judge_options(assignment, request)
    )
    stub = SynthesizeServiceStub(assignment.judge.channel)
    longest = scope.for_gold_answer()
    response = await ask(
        assignment, scope, stub.Synthesize, question, SynthesizeResponse, left=longest, longest=longest
    )
    if isinstance(response, Failure):
        failure = f"The judge {assignment.judge.name!r} {response.explanation}."
        return GoldAnswer(failure=failure, failure_reason=response.reason)
    answer = _read(response)
    answer.provenance.registered_name = assignment.judge.name
    return answer


def _read(response: SynthesizeResponse) -> GoldAnswer:
    answer = GoldAnswer(pool_ids=response.pool_ids, provenance=response.provenance, failure=response.failure)
    if answer.failure:
        answer.failure_reason = response.failure_reason
    elif not any(step.text.strip() for step in response.script.steps):
        answer.failure = "The synthesizer answered without steps."
        answer.failure_reason = verdict_pb2.ABSTAIN_REASON_EMPTY
    if not answer.failure:
        answer.script.CopyFrom(response.script)
    return answer


def _anonymous(candidate: Candidate) -> Candidate:
    """The candidate without the model that wrote it."""
    if not candidate.model:
        return candidate
    copy = Candidate()
    copy.CopyFrom(candidate)
    copy.ClearField("model")
    return copy


FindGoldAnswer = Callable[[], Awaitable[GoldAnswer | None]]
"""Waits for the gold answer; None where none is wanted."""


class ScriptsEvaluation(Evaluation[ScriptsPlan]):
    """The evaluation of one task's candidates.

    Judges that compare with the gold answer wait for it; the others start at once. A judge that fails makes
    its own criteria abstain and does not affect others. Judges do not learn which model wrote a candidate.
    """

    response_type = EvaluateScriptsResponse

    def __init__(self, plan: ScriptsPlan, context: EvaluationContext, scope: EvaluationScope) -> None:
        super().__init__(plan, context, scope)
        self._given = plan.request
        self._readings: Sequence[ParsedCandidate] = ()
        self._shadows = ShadowCalls(plan.shadows, scope)

    @staticmethod
    def judgements(result: ScriptsResult, rows: Iterable[RunResult]) -> Iterator[Judgement]:
        """The verdicts of every judge; those of panels are derived from them and not counted."""
        del rows
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
        readings = await read_candidates(
            self._plan.request.candidates, self._context.parsers, self._scope.tenant
        )
        judged = [place for place, one in enumerate(readings) if one.reading != verdict_pb2.READING_EMPTY]
        if len(judged) < len(readings):
            self._leave_out_empty(judged)
        self._readings = [readings[place] for place in judged]
        if not judged:
            return self._result(None, {})
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

    async def _assess_all(self, find: FindGoldAnswer, emit: Emit) -> Mapping[str, Assessed]:
        """The assessments by candidate."""
        request = self._plan.request
        candidates = [
            encode_candidate(candidate, read)
            for candidate, read in zip(request.candidates, self._readings, strict=True)
        ]
        assessor = Assessor(request.task, candidates, request, self._context.directory)

        async def find_reference(role: JudgeRole, identity: Identity | None) -> Script | None:
            if not (role.compares or (identity is not None and USES_REFERENCE in identity.capabilities)):
                return None
            answer = await find()
            if answer is not None and self._comes_later(answer):
                raise ReferencePendingError
            return answer.script if answer is not None and answer.script.steps else None

        self._shadows.start(
            [candidate.id for candidate in candidates],
            lambda shadow, scope, emit: assessor.assess(shadow, scope, self._ask, find_reference, emit),
        )
        return await assessor.assess_all(self._plan.assignments, self._scope, self._ask, find_reference, emit)

    def _comes_later(self, answer: GoldAnswer) -> bool:
        if answer.failure_reason == verdict_pb2.ABSTAIN_REASON_BATCH_PENDING:
            return True
        return self._scope.is_repeated_for(answer.failure, answer)

    def _ask(self, role: JudgeRole, identity: Identity | None) -> AskedCriteria:
        expected = expected_criteria(role, identity, self._plan.role_criteria)
        requested = [
            Criterion(id=criterion, definition=role.definitions.get(criterion, ""))
            for criterion in requested_criteria(expected, identity)
        ]
        return AskedCriteria(expected, requested)

    def _result(self, gold_answer: GoldAnswer | None, assessed: Mapping[str, Assessed]) -> ScriptsResult:
        request = self._plan.request
        usages = [one.assessment.provenance.usage for row in assessed.values() for _, one in row]
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
            candidate.id: (reading, assessed[candidate.id])
            for candidate, reading in zip(request.candidates, self._readings, strict=True)
        }
        for candidate in self._given.candidates:
            made = result.candidates.add(candidate_id=candidate.id, model=candidate.model)
            made.script.SetInParent()
            if candidate.id not in judged:
                self._fail(made, candidate.failure_reason or verdict_pb2.ABSTAIN_REASON_EMPTY)
                continue
            reading, row = judged[candidate.id]
            assessments = [one for _, one in row]
            made.verdicts.extend(decide(assessments, ABSEVAL, [judge for judge, _ in row]))
            made.assessments.extend(assessments)
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


class ScriptsKind(RunKind):
    method = "EvaluateScripts"
    request_type = EvaluateScriptsRequest
    planner = staticmethod(plan_scripts)
    evaluation = ScriptsEvaluation
    items = ("candidates",)
    name = "scripts"
    results = SCRIPTS
    summary = ScriptsKindSummary()
    roles = (AUTHOR, SYNTHESIZE, CRITIC, EXECUTE, COMMONSENSE, SCRIPT_JUDGE)
    accepts_configured_roles = True

    def written_fields(self, spec: RunSpec) -> Sequence[str]:
        return ("candidates",) if spec.models else ()

    def _row_judges(self, spec: RunSpec) -> Sequence[JudgeSelection]:
        # The author writes before rows are judged.
        return [selection for selection in spec.judges if selection.role != AUTHOR.name]

    def _apply_options(self, request: EvaluateScriptsRequest, spec: RunSpec) -> None:
        options = spec.scripts
        if options.mechanism:
            request.mechanism = options.mechanism
        if options.gold_answer_source:
            request.gold_answer_source = options.gold_answer_source
            if options.gold_answer_source != GOLD_ANSWER_SOURCE_GIVEN:
                request.ClearField("gold_answer")

    def plan_row(self, request: EvaluateScriptsRequest, spec: RunSpec, context: EvaluationContext) -> Plan:
        if not spec.models:
            return self.plan(request, context)
        planned = EvaluateScriptsRequest()
        planned.CopyFrom(request)
        planned.candidates.extend(placeholders(request, spec))
        return self.plan(planned, context)

    def planned_calls(
        self, request: EvaluateScriptsRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        planned = EvaluateScriptsRequest()
        planned.CopyFrom(request)
        written = placeholders(request, spec) if spec.models else []
        planned.candidates.extend(written)
        plan = plan_scripts(planned, context.registry)
        task = text_length(request.task)
        given = [text_length(candidate) for candidate in request.candidates]
        mean = sum(given) // len(given) if given else WRITTEN_CHARACTERS
        scripts, count = sum(given) + len(written) * mean, len(planned.candidates)
        reference = 0 if plan.source == GOLD_ANSWER_SOURCE_NONE else mean
        calls = [
            PlannedCalls(
                one.judge,
                one.model,
                count,
                scripts + count * (task + reference),
                assumption=one.assumption,
            )
            for one in (*plan.assignments, *counted_shadows(plan.shadows))
        ]
        if plan.synthesizer is not None:
            pool = scripts if plan.source == GOLD_ANSWER_SOURCE_POOLED else 0
            calls.append(PlannedCalls(plan.synthesizer.judge, plan.synthesizer.model, 1, task + pool))
        if spec.models:
            author = select_author(spec, context.registry).judge
            calls += [PlannedCalls(author, model, 1, task, "write_script") for model in spec.models]
        return calls

    async def evaluate(
        self,
        request: EvaluateScriptsRequest,
        spec: RunSpec,
        repeat_offset: int,
        context: EvaluationContext,
        scope: EvaluationScope,
    ) -> ScriptsResult:
        if not spec.models:
            result: ScriptsResult = await self.begin(request, context, scope).result()
            return result
        self.plan_row(request, spec, context)
        scripts = await write_scripts(request, spec, repeat_offset, context.registry, scope)
        if scope.batch is not None:
            scope.batch.raise_if_pending()
        request.candidates.extend(script.candidate for script in scripts if script.is_judgeable)
        if request.candidates:
            result = await self.begin(request, context, scope).result()
        else:
            result = ScriptsResult(task=request.task, tags=request.tags, mechanism=request.mechanism)
        add_scripts(result, scripts)
        return result

    def preparation(self, result: ScriptsResult) -> tuple[str, Any]:
        return "there is no gold answer", result.gold_answer

    def model_provenances(self, result: ScriptsResult) -> Iterator[tuple[str, Provenance]]:
        for candidate in result.candidates:
            for assessed in candidate.assessments:
                yield candidate.model, assessed.assessment.provenance


KIND = ScriptsKind()
