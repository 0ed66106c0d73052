"""The kind ``decisions`` (Choice-75): one call for each model, prompt and order of the options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dramaturg.api.common.v1 import decision_pb2, verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1 import decisions_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import (
    DecisionResult,
    EvaluateDecisionsRequest,
    EvaluateDecisionsResponse,
    ModelChoice,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.generation.v1 import authoring_decisions_pb2
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    ChooseOptionRequest,
    ChooseOptionResponse,
    DecisionPrompt,
)
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.judge.provenance import total_usage
from dramaturg.judge.roles import AUTHOR
from dramaturg.kinds.decisions import DECISIONS
from dramaturg.service.errors import Violation, invalid_fields
from dramaturg.service.threads import gather_all
from dramaturg.service.validation import check_distinct
from gateway.evaluations.calls import ask, judge_options
from gateway.evaluations.checks import check_alone
from gateway.evaluations.decisions.summary import DecisionsKindSummary
from gateway.evaluations.failures import Failure, is_model_failure
from gateway.evaluations.kind import PlannedCalls, RunKind, text_length
from gateway.evaluations.scope import EvaluationContext
from gateway.evaluations.streams import Emit, Evaluation
from gateway.judges.registry import Registry
from gateway.judges.selection import JudgeAssignment, check_selections, select_judges

CHOICES = frozenset({decision_pb2.CHOICE_OPTION_1, decision_pb2.CHOICE_OPTION_2, decision_pb2.CHOICE_EITHER})
_ORDERS = {
    decisions_pb2.OPTION_ORDER_UNSPECIFIED: (False,),
    decisions_pb2.OPTION_ORDER_AS_GIVEN: (False,),
    decisions_pb2.OPTION_ORDER_SWAPPED: (True,),
    decisions_pb2.OPTION_ORDER_BOTH: (False, True),
}


class Question(NamedTuple):
    """The decision with a model, a prompt and an order of the options."""

    model: str
    """The model, as named in the request. Empty: the author's default."""
    prompt: DecisionPrompt.ValueType
    """The prompt; never unspecified."""
    swapped: bool
    """Whether option 2 is shown first."""


@dataclass(frozen=True)
class DecisionsPlan:
    """A valid request and its author."""

    request: EvaluateDecisionsRequest
    author: JudgeAssignment
    """The author; it calls the models."""

    def questions(self) -> Sequence[Question]:
        """All questions, by model, prompt and order as requested."""
        request = self.request
        prompts = [
            prompt or authoring_decisions_pb2.DECISION_PROMPT_NAIVE for prompt in request.prompts or (0,)
        ]
        return [
            Question(model, DecisionPrompt.ValueType(prompt), swapped)
            for model in request.models or ("",)
            for prompt in prompts
            for swapped in _ORDERS[request.option_order]
        ]

    def accepted(self) -> EvaluationAccepted:
        """The event that states the plan."""
        return EvaluationAccepted(judges=[self.author.describe()], assessment_count=len(self.questions()))


def plan_decisions(request: EvaluateDecisionsRequest, registry: Registry) -> DecisionsPlan:
    """Plans the evaluation of a request that is within the contract's limits.

    Args:
        request: The request.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN;
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    prompts = [prompt or authoring_decisions_pb2.DECISION_PROMPT_NAIVE for prompt in request.prompts]
    violations = [
        *check_distinct("models", request.models),
        *check_distinct("prompts", [DecisionPrompt.Name(prompt) for prompt in prompts]),
        *_check_demonstrations(request),
        *check_selections(request.judges, (AUTHOR,), registry.roles),
        *check_alone(request.judges, (AUTHOR,)),
    ]
    if violations:
        raise invalid_fields(violations)
    (author,) = select_judges(request.judges, (AUTHOR,), registry, request.options.model)
    return DecisionsPlan(request, author)


def _check_demonstrations(request: EvaluateDecisionsRequest) -> Iterator[Violation]:
    asked = request.decision
    for index, demonstration in enumerate(request.demonstrations):
        path = f"demonstrations[{index}]"
        if demonstration.choice not in CHOICES:
            yield Violation(f"{path}.choice", "must be stated: a demonstration is a solved example")
        shown = demonstration.decision
        if (shown.goal, shown.scenario) == (asked.goal, asked.scenario):
            yield Violation(path, "repeats the decision itself and reveals its choice")


class DecisionsEvaluation(Evaluation[DecisionsPlan]):
    """The evaluation of one decision. A model that cannot be asked abstains; the others are not affected."""

    response_type = EvaluateDecisionsResponse

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
    planner = staticmethod(plan_decisions)
    evaluation = DecisionsEvaluation
    items = ("models",)
    name = "decisions"
    results = DECISIONS
    summary = DecisionsKindSummary()
    roles = (AUTHOR,)

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
