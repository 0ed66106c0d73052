"""The kind ``pairs``: pairs of texts (DRPE)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest, PairResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.judge.role_sets import role_set
from dramaturg.judge.roles import ALIGNMENT, PAIR_JUDGE, ROLES_FINDER
from dramaturg.results.pairs import PAIRS
from dramaturg.service.errors import Violation
from gateway.evaluations.estimates import PlannedCalls, text_length
from gateway.evaluations.kind import EvaluationContext, RunKind
from gateway.evaluations.pairs.evaluation import PairsEvaluation
from gateway.evaluations.pairs.plan import (
    BY_FIXED_ROLES,
    BY_ONE_JUDGE,
    PairsPlan,
    check_role_plan,
    plan_pairs,
)
from gateway.evaluations.pairs.summary import PairsKindSummary
from gateway.evaluations.scope import EvaluationScope
from gateway.judges.selection import counted_shadows

GENERATED_ROLE_CHARACTERS = 120
"""The supposed length of a role that a model is to write."""


class PairsKind(RunKind):
    method = "EvaluatePairs"
    request_type = EvaluatePairsRequest
    name = "pairs"
    results = PAIRS
    summary = PairsKindSummary()
    roles = (ROLES_FINDER, PAIR_JUDGE, ALIGNMENT)

    def plan(self, request: EvaluatePairsRequest, context: EvaluationContext) -> PairsPlan:
        return plan_pairs(request, context.registry)

    def begin(
        self, request: EvaluatePairsRequest, context: EvaluationContext, scope: EvaluationScope
    ) -> PairsEvaluation:
        return PairsEvaluation(self.plan(request, context), context.directory, scope)

    def planned_calls(
        self, request: EvaluatePairsRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        del spec
        plan = plan_pairs(request, context.registry)
        shown = sum(map(len, (request.source, request.instruction, request.first.text, request.second.text)))
        count = plan.order_count
        calls = [
            # All roles vote in one call.
            PlannedCalls(one.judge, one.model, count, count * (shown + voters), prompt)
            for voters, prompt in (_voters(plan, method) for method in plan.methods)
            for one in (*plan.judges, *counted_shadows(plan.shadows))
        ]
        if plan.finder is not None and plan.generated:
            finder = plan.finder
            calls.append(PlannedCalls(finder.judge, finder.model, 1, len(request.source), "generate_roles"))
        return calls

    def check_models(self, models: Sequence[str]) -> Iterator[Violation]:
        if models:
            yield Violation("models", "must be empty for pairs: the row names the author of each text")
        yield from super().check_models(models)

    def check_spec(self, spec: RunSpec) -> Iterator[Violation]:
        for found in check_role_plan(spec.pairs.roles):
            yield Violation(f"pairs.{found.field}", found.description)

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


def _voters(plan: PairsPlan, method: str) -> tuple[int, str]:
    """The length of the roles that vote in a method, in characters, and the prompt."""
    if method == BY_ONE_JUDGE:
        return 0, "compare_texts"
    if method == BY_FIXED_ROLES:
        return sum(map(text_length, role_set(BY_FIXED_ROLES))), "compare_texts_by_roles"
    roles = [*plan.objective, *plan.request.roles.subjective_roles]
    written = (plan.coarse_count + plan.fine_count) * GENERATED_ROLE_CHARACTERS
    return sum(map(text_length, roles)) + written, "compare_texts_by_roles"
