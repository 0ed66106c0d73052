"""The kind ``scenarios``: scenario writing of Choice-75."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.evaluation.v1.scenarios_pb2 import ScenariosResult, WriteScenariosRequest
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    SCENARIO_FORM_HARD_VERB_PHRASE,
    SCENARIO_FORM_USER_PROFILE,
)
from dramaturg.judge.roles import AUTHOR, EMBEDDING
from dramaturg.results.scenarios import SCENARIOS
from gateway.evaluations.estimates import PlannedCalls, text_length
from gateway.evaluations.kind import EvaluationContext, RunKind
from gateway.evaluations.scenarios.evaluation import ScenarioWriting
from gateway.evaluations.scenarios.plan import ScenariosPlan, plan_scenarios
from gateway.evaluations.scenarios.summary import ScenariosKindSummary
from gateway.evaluations.scope import EvaluationScope


class ScenariosKind(RunKind):
    method = "WriteScenarios"
    request_type = WriteScenariosRequest
    items = ("models",)
    name = "scenarios"
    results = SCENARIOS
    summary = ScenariosKindSummary()
    roles = (AUTHOR, EMBEDDING)

    def plan(self, request: WriteScenariosRequest, context: EvaluationContext) -> ScenariosPlan:
        return plan_scenarios(request, context.registry)

    def begin(
        self, request: WriteScenariosRequest, context: EvaluationContext, scope: EvaluationScope
    ) -> ScenarioWriting:
        return ScenarioWriting(self.plan(request, context), scope)

    def planned_calls(
        self, request: WriteScenariosRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        del spec
        plan = plan_scenarios(request, context.registry)
        shown = text_length(request.brief) + sum(map(text_length, request.demonstrations))
        shown += sum(map(len, (*request.musts, *request.must_nots)))
        prompts = {
            SCENARIO_FORM_HARD_VERB_PHRASE: ("write_scenario", "write_scenario_behind"),
            SCENARIO_FORM_USER_PROFILE: ("write_profile",),
        }.get(plan.form, ("write_scenario",))
        return [
            PlannedCalls(plan.author.judge, one.model or plan.author.model, 1, shown, prompt)
            for one in plan.scenarios()
            for prompt in prompts
        ]

    def apply_spec(self, request: WriteScenariosRequest, spec: RunSpec, repeat_offset: int = 0) -> None:
        sampled = request.options.HasField("sampling") or spec.options.HasField("sampling")
        super().apply_spec(request, spec, repeat_offset)
        if not sampled and request.options.HasField("sampling"):
            # A seed alone keeps the author's temperature, with which scenarios differ.
            request.options.sampling.ClearField("temperature")

    def _apply_options(self, request: WriteScenariosRequest, spec: RunSpec) -> None:
        options = spec.scenarios
        request.form = options.form or request.form
        request.count = options.count or request.count
        if options.HasField("duplicate_threshold"):
            request.duplicate_threshold = options.duplicate_threshold
        if options.demonstrations:
            request.ClearField("demonstrations")
            request.demonstrations.extend(options.demonstrations)

    def model_provenances(self, result: ScenariosResult) -> Iterator[tuple[str, Provenance]]:
        return ((one.model, one.provenance) for one in result.scenarios)
