"""The plan of an evaluation of scripts: mechanism, gold answer and judges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    EvaluateScriptsRequest,
    GoldAnswerSource,
    Mechanism,
)
from dramaturg.judge.roles import COMMONSENSE, CRITIC, EXECUTE, SCRIPT_JUDGE, SYNTHESIZE, JudgeRole, Role
from dramaturg.service.errors import Violation, invalid_fields
from gateway.evaluations.checks import check_no_context
from gateway.evaluations.failures import MODEL_FAILURES
from gateway.judges.registry import Registry
from gateway.judges.selection import JudgeAssignment, Shadow, check_selections, select_judges, select_shadows

_AGENTS: tuple[JudgeRole, ...] = (CRITIC, EXECUTE, COMMONSENSE)
_WRITTEN = (
    scripts_pb2.GOLD_ANSWER_SOURCE_POOLED,
    scripts_pb2.GOLD_ANSWER_SOURCE_DIRECT,
)


@dataclass(frozen=True)
class ScriptsPlan:
    """A valid request and its judges."""

    request: EvaluateScriptsRequest
    mechanism: Mechanism.ValueType
    """The mechanism; never unspecified."""
    source: GoldAnswerSource.ValueType
    """The source of the gold answer; never unspecified."""
    synthesizer: JudgeAssignment | None
    """The author of the gold answer. None if none is needed."""
    assignments: tuple[JudgeAssignment, ...]
    """The judges, in the order of the results."""
    shadows: tuple[Shadow, ...]
    """The shadows of the judges."""
    role_criteria: frozenset[str]
    """The criteria of all roles, built-in and configured."""

    def accepted(self) -> EvaluationAccepted:
        """The event that states the plan."""
        assignments = (*([self.synthesizer] if self.synthesizer else []), *self.assignments)
        return EvaluationAccepted(
            judges=[assignment.describe() for assignment in assignments],
            assessment_count=len(self.assignments) * len(self.request.candidates),
        )


def plan_scripts(request: EvaluateScriptsRequest, registry: Registry) -> ScriptsPlan:
    """Plans the evaluation of a request that is within the contract's limits.

    Args:
        request: The request.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN;
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    mechanism = request.mechanism or scripts_pb2.MECHANISM_AGENTS
    agents = mechanism == scripts_pb2.MECHANISM_AGENTS
    available: Sequence[JudgeRole] = _AGENTS if agents else (SCRIPT_JUDGE,)
    selected = {*request.roles, *(selection.role for selection in request.judges)}
    available = (*available, *(role for role in registry.configured_roles if role.name in selected))
    roles = [role for role in available if not request.roles or role.name in request.roles]
    compares = agents and (not request.roles or any(role.compares for role in roles))
    source = request.gold_answer_source or (
        scripts_pb2.GOLD_ANSWER_SOURCE_POOLED if compares else scripts_pb2.GOLD_ANSWER_SOURCE_NONE
    )
    wanted: Sequence[Role] = (SYNTHESIZE, *roles) if source in _WRITTEN else roles
    violations = [
        *_check_roles(request, available),
        *check_no_context(request.task),
        *_check_candidates(request),
        *_check_gold_answer(request),
        *check_selections(request.judges, wanted, registry.roles),
    ]
    if violations:
        raise invalid_fields(violations)
    assignments = select_judges(request.judges, wanted, registry, request.options.model)
    judges = tuple(assignment for assignment in assignments if isinstance(assignment.role, JudgeRole))
    return ScriptsPlan(
        request=request,
        mechanism=mechanism,
        source=source,
        synthesizer=next((assignment for assignment in assignments if assignment.role is SYNTHESIZE), None),
        assignments=judges,
        shadows=select_shadows(request.shadows, judges, registry),
        role_criteria=registry.criteria,
    )


def _check_roles(request: EvaluateScriptsRequest, available: Sequence[JudgeRole]) -> Iterator[Violation]:
    names = [role.name for role in available]
    for index, name in enumerate(request.roles):
        if name not in names:
            yield Violation(
                f"roles[{index}]",
                f"is {name!r}, which this evaluation does not use; its roles are {', '.join(names)}",
            )


def _check_candidates(request: EvaluateScriptsRequest) -> Iterator[Violation]:
    first: dict[str, int] = {}
    for index, candidate in enumerate(request.candidates):
        if candidate.failure_reason not in (verdict_pb2.ABSTAIN_REASON_UNSPECIFIED, *MODEL_FAILURES):
            yield Violation(
                f"candidates[{index}].failure_reason", "must be refused, empty or truncated, or unspecified"
            )
        elif candidate.failure_reason and (candidate.text.strip() or candidate.script.steps):
            yield Violation(f"candidates[{index}].failure_reason", "must be unspecified if there is a script")
        if candidate.id in first:
            yield Violation(
                f"candidates[{index}].id",
                f"is {candidate.id!r}, as is candidates[{first[candidate.id]}].id; ids are unique",
            )
        first.setdefault(candidate.id, index)


def _check_gold_answer(request: EvaluateScriptsRequest) -> Iterator[Violation]:
    given = request.gold_answer_source == scripts_pb2.GOLD_ANSWER_SOURCE_GIVEN
    if given and not any(step.text.strip() for step in request.gold_answer.steps):
        yield Violation(
            "gold_answer.steps", "must not be empty where gold_answer_source is GOLD_ANSWER_SOURCE_GIVEN"
        )
    if request.HasField("gold_answer") and not given:
        yield Violation("gold_answer", "must be absent unless gold_answer_source is GOLD_ANSWER_SOURCE_GIVEN")
