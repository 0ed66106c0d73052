"""The kind ``texts``: any texts, judged by a rubric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluateTextsRequest, TextsResult
from dramaturg.judge.roles import RUBRIC_JUDGE
from dramaturg.results.texts import TEXTS
from dramaturg.service.errors import Violation
from gateway.evaluations.estimates import PlannedCalls, text_length
from gateway.evaluations.kind import EvaluationContext, RunKind
from gateway.evaluations.rubrics import check_rubric
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.texts.evaluation import TextsEvaluation
from gateway.evaluations.texts.plan import TextsPlan, plan_texts
from gateway.evaluations.texts.summary import TextsKindSummary
from gateway.judges.selection import counted_shadows


class TextsKind(RunKind):
    method = "EvaluateTexts"
    request_type = EvaluateTextsRequest
    items = ("texts",)
    name = "texts"
    results = TEXTS
    summary = TextsKindSummary()
    roles = (RUBRIC_JUDGE,)

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
        count, texts = len(plan.judged), sum(len(one.text) for one in plan.judged)
        return [
            PlannedCalls(one.judge, one.model, count, texts + count * shared)
            for one in (*plan.assignments, *counted_shadows(plan.shadows))
        ]

    def model_provenances(self, result: TextsResult) -> Iterator[tuple[str, Provenance]]:
        for text in result.texts:
            for assessed in text.assessments:
                yield text.model, assessed.assessment.provenance
