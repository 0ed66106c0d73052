"""The kind ``texts``: each judge of the panel judges all texts of a task by the rubric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.script_pb2 import Script, Step
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_SCORED, OUTCOME_UNSPECIFIED, Verdict
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.evaluation.v1.texts_pb2 import (
    EvaluatedText,
    EvaluateTextsRequest,
    EvaluateTextsResponse,
    TextResult,
    TextsResult,
)
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, JudgeCandidate
from dramaturg.judge.conversations import transcript
from dramaturg.judge.roles import JudgeRole
from dramaturg.judge.usage import total_usage
from dramaturg.judge.verdicts import abstained, failed, scored
from dramaturg.results.texts import TEXTS
from dramaturg.service.errors import Violation
from gateway.evaluations.assessments import AskedCriteria, Assessed, Assessor
from gateway.evaluations.checks import check_rubric
from gateway.evaluations.kind import EvaluationContext, PlannedCalls, RunKind, text_length
from gateway.evaluations.panels import decide
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.shadows import ShadowCalls
from gateway.evaluations.streams import Emit, Evaluation, Judgement
from gateway.evaluations.texts.plan import ROLES, TextsPlan, plan_texts
from gateway.evaluations.texts.summary import TextsKindSummary
from gateway.evaluations.verdict_normalization import requested_criteria
from gateway.judges.directory import JudgeDirectory
from gateway.judges.selection import counted_shadows

_EMPTY = "The text has no content."


class TextsEvaluation(Evaluation):
    """The evaluation of the texts of one task.

    A judge that fails makes its own verdicts abstain and does not affect others. Judges do not learn which
    model wrote a text.

    Args:
        plan: The request and its judges.
        directory: The identities of judges.
        scope: What the calls of the evaluation share.
    """

    def __init__(self, plan: TextsPlan, directory: JudgeDirectory, scope: EvaluationScope) -> None:
        super().__init__(EvaluateTextsResponse, plan.accepted)
        self._plan = plan
        self._directory = directory
        self._scope = scope
        self._shadows = ShadowCalls(plan.shadows, scope)

    @staticmethod
    def judgements(result: TextsResult) -> Iterator[Judgement]:
        """The verdicts of every judge; those of panels are derived from them and not counted."""
        for text in result.texts:
            for assessed in text.assessments:
                for verdict in assessed.assessment.verdicts:
                    outcome = verdict.outcome if verdict.outcome != OUTCOME_SCORED else OUTCOME_UNSPECIFIED
                    yield Judgement(assessed.role, assessed.judge, outcome, verdict.abstain_reason)

    async def work(self, emit: Emit) -> TextsResult:
        """See ``Evaluation.work``."""
        return await self._shadows.beside(
            self._evaluate(emit),
            self._plan.request.shadow_wait.ToNanoseconds() / 1e9,
            targets=lambda result: {text.text_id: text.shadows for text in result.texts if text.assessments},
        )

    async def _evaluate(self, emit: Emit) -> TextsResult:
        request = self._plan.request
        candidates = [
            JudgeCandidate(
                id=one.id,
                text=one.text,
                reading=verdict_pb2.READING_TEXT,
                context=one.context,
                conversation=one.conversation if one.HasField("conversation") else None,
            )
            for one in self._plan.judged
        ]
        assessed: Mapping[str, Assessed] = {}
        if candidates:
            assessor = Assessor(request.task, candidates, request, self._directory)
            self._shadows.start(
                [one.id for one in candidates],
                lambda shadow, scope, emit: assessor.assess(
                    shadow, scope, self._ask, self._find_reference, emit
                ),
            )
            assessed = await assessor.assess_all(
                self._plan.assignments, self._scope, self._ask, self._find_reference, emit
            )
        return TextsResult(
            task=request.task,
            tags=request.tags,
            texts=[self._result(one, assessed.get(one.id)) for one in request.texts],
            criteria=request.criteria,
            usage=total_usage(one.assessment.provenance.usage for row in assessed.values() for _, one in row),
        )

    def _ask(self, role: JudgeRole, identity: Identity | None) -> AskedCriteria:
        criteria = self._plan.criteria_of(role)
        requested: Sequence[Criterion] | None = list(criteria.values())
        if identity is not None:
            known = requested_criteria([*criteria], identity)
            requested = [criteria[name] for name in known] or None
        return AskedCriteria([*criteria], requested, self._plan.scales)

    async def _find_reference(self, role: JudgeRole, identity: Identity | None) -> Script | None:
        del role, identity
        text = self._plan.request.reference
        return Script(steps=[Step(text=text)]) if text else None

    def _result(self, text: EvaluatedText, assessed: Assessed | None) -> TextResult:
        result = TextResult(text_id=text.id, model=text.model, text=text.text, context=text.context)
        if text.HasField("conversation"):
            result.text = transcript(text.conversation)
            result.conversation.CopyFrom(text.conversation)
        if assessed is None:
            if not self._plan.request.unusable_outputs_abstain:
                result.failure_reason = verdict_pb2.ABSTAIN_REASON_EMPTY
            result.verdicts.extend(self._empty(name) for name in self._plan.criteria)
        else:
            assessments = [one for _, one in assessed]
            result.verdicts.extend(
                decide(assessments, [*self._plan.criteria], [judge for judge, _ in assessed])
            )
            result.assessments.extend(assessments)
        return result

    def _empty(self, criterion: str) -> Verdict:
        """The verdict on a text without content."""
        if self._plan.request.unusable_outputs_abstain:
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_EMPTY, _EMPTY)
        scale = self._plan.scales.get(criterion)
        if scale is None:
            return failed(criterion, rationale=_EMPTY)
        return scored(criterion, scale.lowest, rationale=_EMPTY)


class TextsKind(RunKind):
    method = "EvaluateTexts"
    request_type = EvaluateTextsRequest
    items = ("texts",)
    name = "texts"
    results = TEXTS
    summary = TextsKindSummary()
    roles = ROLES

    def plan(self, request: EvaluateTextsRequest, context: EvaluationContext) -> TextsPlan:
        return plan_texts(request, context.registry)

    def begin(
        self, request: EvaluateTextsRequest, context: EvaluationContext, scope: EvaluationScope
    ) -> TextsEvaluation:
        return TextsEvaluation(self.plan(request, context), context.directory, scope)

    def check_models(self, models: Sequence[str]) -> Iterator[Violation]:
        if models:
            yield Violation("models", "must be empty for texts: the row names the author of each text")
        yield from super().check_models(models)

    def check_spec(self, spec: RunSpec) -> Iterator[Violation]:
        for found in check_rubric(spec.texts.criteria):
            yield Violation(f"texts.{found.field}", found.description)

    def written_fields(self, spec: RunSpec) -> Sequence[str]:
        return ("criteria",) if spec.texts.criteria else ()

    def _apply_options(self, request: EvaluateTextsRequest, spec: RunSpec) -> None:
        if spec.texts.criteria:
            del request.criteria[:]
            request.criteria.extend(spec.texts.criteria)

    def planned_calls(
        self, request: EvaluateTextsRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        del spec
        plan = plan_texts(request, context.registry)
        shared = sum(map(text_length, (request.task, *plan.criteria.values()))) + len(request.reference)
        count, texts = len(plan.judged), sum(map(text_length, plan.judged))
        return [
            PlannedCalls(one.judge, one.model, count, texts + count * shared, assumption=one.assumption)
            for one in (*plan.assignments, *counted_shadows(plan.shadows))
        ]

    def model_provenances(self, result: TextsResult) -> Iterator[tuple[str, Provenance]]:
        for text in result.texts:
            for assessed in text.assessments:
                yield text.model, assessed.assessment.provenance


KIND = TextsKind()
