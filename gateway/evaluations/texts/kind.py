"""The kind ``texts``: pairs of texts (DRPE)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.evaluation.v1.texts_pb2 import CompareTextsRequest, TextsResult
from dramaturg.judge.roles import ALIGNMENT, PAIR_JUDGE, ROLES_FINDER
from dramaturg.results.texts import TEXTS
from dramaturg.service.errors import Violation
from gateway.evaluations.kind import EvaluationContext, RunKind
from gateway.evaluations.texts.evaluation import TextsEvaluation
from gateway.evaluations.texts.plan import plan_texts
from gateway.evaluations.texts.summary import TextsKindSummary


class TextsKind(RunKind):
    method = "CompareTexts"
    request_type = CompareTextsRequest
    name = "texts"
    results = TEXTS
    summary = TextsKindSummary()
    roles = (ROLES_FINDER, PAIR_JUDGE, ALIGNMENT)

    def plan(self, request: CompareTextsRequest, context: EvaluationContext) -> TextsEvaluation:
        return TextsEvaluation(plan_texts(request, context.registry), context.directory, context.timeouts)

    def check_models(self, models: Sequence[str]) -> Iterator[Violation]:
        if models:
            yield Violation("models", "must be empty for texts: the row names the author of each text")
        yield from super().check_models(models)

    def _apply_options(self, request: CompareTextsRequest, spec: RunSpec) -> None:
        options = spec.texts
        if options.HasField("roles"):
            request.roles.CopyFrom(options.roles)
        if options.order:
            request.order = options.order
        if options.baselines:
            request.baselines[:] = options.baselines
        if options.HasField("rules"):
            request.rules.CopyFrom(options.rules)
        if options.text_metrics:
            request.text_metrics[:] = options.text_metrics

    def preparation(self, result: TextsResult) -> tuple[str, Any]:
        return "there are no roles", result.roles.generation

    def model_provenances(self, result: TextsResult) -> Iterator[tuple[str, Provenance]]:
        del result  # The models wrote the texts before the evaluation.
        yield from ()
