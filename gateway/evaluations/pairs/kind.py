"""The kind ``pairs``: pairs of texts (DRPE)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest, PairResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.judge.roles import ALIGNMENT, PAIR_JUDGE, ROLES_FINDER
from dramaturg.results.pairs import PAIRS
from dramaturg.service.errors import Violation
from gateway.evaluations.kind import EvaluationContext, RunKind
from gateway.evaluations.pairs.evaluation import PairsEvaluation
from gateway.evaluations.pairs.plan import plan_pairs
from gateway.evaluations.pairs.summary import PairsKindSummary


class PairsKind(RunKind):
    method = "EvaluatePairs"
    request_type = EvaluatePairsRequest
    name = "pairs"
    results = PAIRS
    summary = PairsKindSummary()
    roles = (ROLES_FINDER, PAIR_JUDGE, ALIGNMENT)

    def plan(self, request: EvaluatePairsRequest, context: EvaluationContext) -> PairsEvaluation:
        return PairsEvaluation(plan_pairs(request, context.registry), context.directory, context.timeouts)

    def check_models(self, models: Sequence[str]) -> Iterator[Violation]:
        if models:
            yield Violation("models", "must be empty for pairs: the row names the author of each text")
        yield from super().check_models(models)

    def _apply_options(self, request: EvaluatePairsRequest, spec: RunSpec) -> None:
        options = spec.pairs
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

    def preparation(self, result: PairResult) -> tuple[str, Any]:
        return "there are no roles", result.roles.generation

    def model_provenances(self, result: PairResult) -> Iterator[tuple[str, Provenance]]:
        del result  # The models wrote the texts before the evaluation.
        yield from ()
