"""The kind ``decisions``: Choice-75."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult, EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.generation.v1 import authoring_decisions_pb2
from dramaturg.judge.roles import AUTHOR
from dramaturg.results.decisions import DECISIONS
from gateway.evaluations.decisions.evaluation import DecisionsEvaluation
from gateway.evaluations.decisions.plan import DecisionsPlan, plan_decisions
from gateway.evaluations.decisions.summary import DecisionsKindSummary
from gateway.evaluations.estimates import PlannedCalls, text_length
from gateway.evaluations.kind import EvaluationContext, RunKind
from gateway.evaluations.scope import EvaluationScope


class DecisionsKind(RunKind):
    method = "EvaluateDecisions"
    request_type = EvaluateDecisionsRequest
    items = ("models",)
    name = "decisions"
    results = DECISIONS
    summary = DecisionsKindSummary()
    roles = (AUTHOR,)

    def plan(self, request: EvaluateDecisionsRequest, context: EvaluationContext) -> DecisionsPlan:
        return plan_decisions(request, context.registry)

    def begin(
        self, request: EvaluateDecisionsRequest, context: EvaluationContext, scope: EvaluationScope
    ) -> DecisionsEvaluation:
        return DecisionsEvaluation(self.plan(request, context), scope)

    def planned_calls(
        self, request: EvaluateDecisionsRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        del spec
        plan = plan_decisions(request, context.registry)
        decision = text_length(request.decision)
        shown = sum(map(text_length, request.demonstrations))
        story = authoring_decisions_pb2.DECISION_PROMPT_STORY
        return [
            PlannedCalls(
                plan.author.judge,
                question.model or plan.author.model,
                1,
                decision + shown,
                "decision_story" if question.prompt == story else "decision_naive",
            )
            for question in plan.questions()
        ]

    def _apply_options(self, request: EvaluateDecisionsRequest, spec: RunSpec) -> None:
        options = spec.decisions
        if options.prompts:
            request.prompts[:] = options.prompts
        if options.option_order:
            request.option_order = options.option_order
        if options.demonstrations:
            del request.demonstrations[:]
            request.demonstrations.extend(options.demonstrations)

    def model_provenances(self, result: DecisionResult) -> Iterator[tuple[str, Provenance]]:
        return ((choice.model, choice.provenance) for choice in result.choices)
