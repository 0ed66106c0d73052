"""The plan of an evaluation of decisions: the questions and their author."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.evaluation.v1 import decisions_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.generation.v1 import authoring_decisions_pb2
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DecisionPrompt
from dramaturg.judge.roles import AUTHOR
from dramaturg.service.errors import Violation, invalid_fields
from gateway.evaluations.checks import check_alone, check_distinct
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
