"""The plan of scenario writing: the requested scenarios, their author and the embedding service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dramaturg.api.common.v1.decision_pb2 import CHOICE_OPTION_1, CHOICE_OPTION_2, Choice
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.evaluation.v1.scenarios_pb2 import WriteScenariosRequest
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    SCENARIO_FORM_HARD_VERB_PHRASE,
    SCENARIO_FORM_USER_PROFILE,
    SCENARIO_FORM_VERB_PHRASE,
    ScenarioForm,
)
from dramaturg.judge.roles import AUTHOR, EMBEDDING
from dramaturg.results.scenarios import TARGETS
from dramaturg.service.errors import Violation, invalid_fields
from gateway.evaluations.checks import check_alone, check_distinct
from gateway.judges.registry import Registry
from gateway.judges.selection import JudgeAssignment, check_selections, select_judges

DEFAULT_COUNT = 4
"""The default number of scenarios for each model and option."""
DEFAULT_THRESHOLD = 0.9
"""The default cosine of near-duplicates."""

_ROLES = (AUTHOR, EMBEDDING)


class RequestedScenario(NamedTuple):
    """A scenario to write."""

    id: str
    model: str
    """The model, as named in the request. Empty: the author's default."""
    target: Choice.ValueType
    """CHOICE_OPTION_1 or CHOICE_OPTION_2."""
    repeat_index: int
    """Tells the scenarios of one model and option apart."""


@dataclass(frozen=True)
class ScenariosPlan:
    """A valid request, its author and its embedding service."""

    request: WriteScenariosRequest
    author: JudgeAssignment
    """The author; it calls the models."""
    embedder: JudgeAssignment | None
    """The embedding service. None: near-duplicates have equal words."""

    @property
    def form(self) -> ScenarioForm.ValueType:
        """The form; never unspecified."""
        return self.request.form or SCENARIO_FORM_VERB_PHRASE

    @property
    def threshold(self) -> float:
        """The cosine of near-duplicates."""
        request = self.request
        return request.duplicate_threshold if request.HasField("duplicate_threshold") else DEFAULT_THRESHOLD

    def scenarios(self) -> Sequence[RequestedScenario]:
        """All scenarios, by model, option and number."""
        request = self.request
        count = request.count or DEFAULT_COUNT
        targets = [request.target] if request.target else [CHOICE_OPTION_1, CHOICE_OPTION_2]
        numbers: Counter[int] = Counter()
        found = []
        for model in request.models or (request.options.model,):
            for target in targets:
                for index in range(count):
                    name = f"{TARGETS[target]}/{numbers[target]}"
                    numbers[target] += 1
                    # Repeats of the request are other scenarios than those of its first time.
                    repeat = request.options.repeat_index * count + index
                    found.append(RequestedScenario(name, model, target, repeat))
        return found

    def accepted(self) -> EvaluationAccepted:
        """The event that states the plan."""
        judges = [self.author, *([self.embedder] if self.embedder is not None else [])]
        return EvaluationAccepted(
            judges=[one.describe() for one in judges], assessment_count=len(self.scenarios())
        )


def plan_scenarios(request: WriteScenariosRequest, registry: Registry) -> ScenariosPlan:
    """Plans the scenarios of a request that is within the contract's limits.

    Args:
        request: The request.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN;
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    found = [
        *check_distinct("models", request.models),
        *_check_form(request),
        *check_selections(request.judges, _ROLES, registry.roles),
        *check_alone(request.judges, _ROLES),
    ]
    if found:
        raise invalid_fields(found)
    (author,) = select_judges(request.judges, (AUTHOR,), registry, "")
    selected = any(one.role == EMBEDDING.name for one in request.judges)
    served = selected or registry.default(EMBEDDING.name) is not None
    embedder = select_judges(request.judges, (EMBEDDING,), registry, "")[0] if served else None
    return ScenariosPlan(request, author, embedder)


def _check_form(request: WriteScenariosRequest) -> Iterator[Violation]:
    """Finds fields that the form or the target does not allow; the author would refuse each scenario."""
    if request.target and request.target not in TARGETS:
        yield Violation("target", "must be CHOICE_OPTION_1, CHOICE_OPTION_2 or absent")
    if request.form != SCENARIO_FORM_USER_PROFILE:
        for field in ("musts", "must_nots"):
            if getattr(request, field):
                yield Violation(field, "is only for SCENARIO_FORM_USER_PROFILE")
    for index, shown in enumerate(request.demonstrations):
        if shown.target not in TARGETS:
            path = f"demonstrations[{index}].target"
            yield Violation(path, "must be CHOICE_OPTION_1 or CHOICE_OPTION_2")
        if request.form == SCENARIO_FORM_HARD_VERB_PHRASE and not shown.base_scenario.strip():
            path = f"demonstrations[{index}].base_scenario"
            yield Violation(path, "is required for SCENARIO_FORM_HARD_VERB_PHRASE")
