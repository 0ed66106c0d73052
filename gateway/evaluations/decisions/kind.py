"""The kind ``decisions`` (Choice-75): one call for each model, prompt and order of the options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.decisions_pb2 import (
    DecisionResult,
    EvaluateDecisionsRequest,
    EvaluateDecisionsResponse,
    ModelChoice,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.generation.v1 import authoring_decisions_pb2
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    ChooseOptionRequest,
    ChooseOptionResponse,
)
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.judge.roles import AUTHOR
from dramaturg.judge.usage import total_usage
from dramaturg.results.decisions import DECISIONS
from dramaturg.service.concurrency import gather_all
from gateway.evaluations.calls import ask, judge_options
from gateway.evaluations.decisions.plan import CHOICES, DecisionsPlan, Question, plan_decisions
from gateway.evaluations.decisions.summary import DecisionsKindSummary
from gateway.evaluations.failures import Failure, is_model_failure
from gateway.evaluations.kind import EvaluationContext, PlannedCalls, RunKind, text_length
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.streams import Emit, Evaluation


class DecisionsEvaluation(Evaluation):
    """The evaluation of one decision. A model that cannot be asked abstains; the others are not affected.

    Args:
        plan: The plan of the evaluation.
        scope: What the calls of the evaluation share.
    """

    def __init__(self, plan: DecisionsPlan, scope: EvaluationScope) -> None:
        super().__init__(EvaluateDecisionsResponse, plan.accepted)
        self._plan = plan
        self._scope = scope

    async def work(self, emit: Emit) -> DecisionResult:
        request = self._plan.request
        choices = await gather_all([self._ask(one, emit) for one in self._plan.questions()])
        return DecisionResult(
            decision=request.decision,
            gold=request.gold,
            tags=request.tags,
            choices=choices,
            usage=total_usage(choice.provenance.usage for choice in choices),
        )

    async def _ask(self, question: Question, emit: Emit) -> ModelChoice:
        request, assignment = self._plan.request, self._plan.author
        options = judge_options(assignment, request)
        options.model = question.model or assignment.model
        asked = ChooseOptionRequest(
            decision=request.decision,
            demonstrations=request.demonstrations,
            prompt=question.prompt,
            options_swapped=question.swapped,
            options=options,
        )
        stub = AuthoringServiceStub(assignment.judge.channel)
        answer = await ask(assignment, self._scope, stub.ChooseOption, asked, ChooseOptionResponse)
        choice = ModelChoice(model=question.model, prompt=question.prompt, options_swapped=question.swapped)
        if isinstance(answer, Failure):
            choice.abstain_reason = answer.reason
        else:
            _normalize(choice, answer)
            choice.provenance.registered_name = assignment.judge.name
            if is_model_failure(choice.abstain_reason, abstains=request.unusable_outputs_abstain):
                choice.failure_reason = choice.abstain_reason
                choice.ClearField("abstain_reason")
        if request.gold and (choice.choice or choice.failure_reason):
            choice.correct = choice.choice == request.gold
        emit(choice=choice)
        return choice


def _normalize(choice: ModelChoice, answer: ChooseOptionResponse) -> None:
    """Copies the choice or abstention of an answer. An answer with neither abstains as UNPARSABLE."""
    choice.text = answer.text
    choice.provenance.CopyFrom(answer.provenance)
    decided = answer.choice in CHOICES
    if decided and answer.abstain_reason:
        choice.abstain_reason = verdict_pb2.ABSTAIN_REASON_CONTRADICTORY
    elif decided:
        choice.choice = answer.choice
    else:
        choice.abstain_reason = answer.abstain_reason or verdict_pb2.ABSTAIN_REASON_UNPARSABLE


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


KIND = DecisionsKind()
