"""The kind ``scenarios`` (Choice-75, section 2.4): models write scenarios, and near-duplicates are found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_UNPARSABLE
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.evaluation.v1.scenarios_pb2 import (
    ScenariosResult,
    WriteScenariosRequest,
    WriteScenariosResponse,
    WrittenScenario,
)
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    SCENARIO_FORM_HARD_VERB_PHRASE,
    SCENARIO_FORM_USER_PROFILE,
    WriteScenarioRequest,
    WriteScenarioResponse,
)
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.authoring.duplicates import repeats
from dramaturg.judge.roles import AUTHOR, EMBEDDING
from dramaturg.judge.usage import total_usage
from dramaturg.results.scenarios import SCENARIOS
from dramaturg.service.concurrency import gather_all
from gateway.evaluations.calls import ask, embed_by, judge_options
from gateway.evaluations.failures import Failure, is_model_failure
from gateway.evaluations.kind import EvaluationContext, PlannedCalls, RunKind, text_length
from gateway.evaluations.scenarios.plan import RequestedScenario, ScenariosPlan, plan_scenarios
from gateway.evaluations.scenarios.summary import ScenariosKindSummary
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.streams import Emit, Evaluation

NO_SERVICE = "no service of the role 'embedding' is registered"
"""The reason for which meanings are not compared, if there is no embedding service."""


class ScenarioWriting(Evaluation):
    """Writes the scenarios of one brief. A scenario that is not written abstains; the others are kept.

    Args:
        plan: The plan of the evaluation.
        scope: What the calls of the evaluation share.
    """

    def __init__(self, plan: ScenariosPlan, scope: EvaluationScope) -> None:
        super().__init__(WriteScenariosResponse, plan.accepted)
        self._plan = plan
        self._scope = scope

    async def work(self, emit: Emit) -> ScenariosResult:
        request = self._plan.request
        written = await gather_all([self._write(one, emit) for one in self._plan.scenarios()])
        result = ScenariosResult(
            brief=request.brief,
            id=request.id,
            form=self._plan.form,
            tags=request.tags,
            duplicate_threshold=self._plan.threshold,
        )
        await self._find_duplicates(written, result)
        result.scenarios.extend(written)
        result.usage.CopyFrom(total_usage(one.provenance.usage for one in written))
        return result

    async def _write(self, wanted: RequestedScenario, emit: Emit) -> WrittenScenario:
        request, assignment = self._plan.request, self._plan.author
        options = judge_options(assignment, request)
        options.model = wanted.model or assignment.model
        options.repeat_index = wanted.repeat_index
        asked = WriteScenarioRequest(
            brief=request.brief,
            target=wanted.target,
            form=self._plan.form,
            demonstrations=request.demonstrations,
            musts=request.musts,
            must_nots=request.must_nots,
            options=options,
        )
        stub = AuthoringServiceStub(assignment.judge.channel)
        answer = await ask(assignment, self._scope, stub.WriteScenario, asked, WriteScenarioResponse)
        written = WrittenScenario(id=wanted.id, model=wanted.model, target=wanted.target)
        if isinstance(answer, Failure):
            written.abstain_reason = answer.reason
            written.failure = f"the author {assignment.judge.name!r} {answer.explanation}"
        else:
            _normalize(written, answer)
            written.provenance.registered_name = assignment.judge.name
            if is_model_failure(written.abstain_reason, abstains=request.unusable_outputs_abstain):
                written.failure_reason = written.abstain_reason
                written.ClearField("abstain_reason")
        emit(scenario=written)
        return written

    async def _find_duplicates(self, written: Sequence[WrittenScenario], result: ScenariosResult) -> None:
        """Marks near-duplicates of earlier scenarios, and states by what they were found."""
        present = [one for one in written if one.scenario]
        texts = [one.scenario for one in present]
        vectors = await self._embed(texts, result)
        for one, earlier in zip(present, repeats(texts, vectors, result.duplicate_threshold), strict=True):
            if earlier is not None:
                one.duplicate_of = present[earlier].id

    async def _embed(
        self, texts: Sequence[str], result: ScenariosResult
    ) -> Sequence[Sequence[float] | None] | None:
        assignment = self._plan.embedder
        if assignment is None:
            result.duplicates_unchecked = NO_SERVICE
            return None
        if len(texts) < 2:
            return None
        found = await embed_by(assignment, self._scope, texts)
        if found.failure:
            result.duplicates_unchecked = f"the embedding service {assignment.judge.name!r} {found.failure}"
        if any(found.vectors):
            result.embedding_service, result.embedding_model = assignment.judge.name, found.model
        return found.vectors


def _normalize(written: WrittenScenario, answer: WriteScenarioResponse) -> None:
    """Copies the scenario, or the reason for its absence. An answer with neither abstains as UNPARSABLE."""
    written.provenance.CopyFrom(answer.provenance)
    if answer.scenario.strip() and not answer.abstain_reason:
        written.scenario = answer.scenario
        written.base_scenario = answer.base_scenario
        written.leaks_option = answer.leaks_option
        return
    written.abstain_reason = answer.abstain_reason or ABSTAIN_REASON_UNPARSABLE
    written.failure = answer.failure or "the author answered without a scenario"


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


KIND = ScenariosKind()
