"""The plan of a simulation: the author of both sides and the challenge judge."""

from __future__ import annotations

from dataclasses import dataclass

from dramaturg.api.evaluation.v1.dialogues_pb2 import SimulateDialogueRequest
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.judge.roles import AUTHOR, CHALLENGE_JUDGE
from dramaturg.service.errors import invalid_fields
from gateway.evaluations.checks import check_alone
from gateway.judges.registry import Registry
from gateway.judges.selection import JudgeAssignment, Shadow, check_selections, select_judges, select_shadows

MAX_TURNS = 4
"""The default maximum of turns (SimulBench, section 3.2)."""

_ROLES = (AUTHOR, CHALLENGE_JUDGE)


@dataclass(frozen=True)
class SimulationPlan:
    """A valid request, its author and its challenge judge."""

    request: SimulateDialogueRequest
    author: JudgeAssignment
    """The author of both sides."""
    challenge_judge: JudgeAssignment
    """The judge that finds the first challenging turn."""
    shadows: tuple[Shadow, ...] = ()
    """The shadows of the challenge judge."""

    def max_turns(self) -> int:
        """The maximum number of turns."""
        return self.request.max_turn_count or MAX_TURNS

    def accepted(self) -> EvaluationAccepted:
        """The event that states the plan. It has no count: the number of utterances is unknown."""
        return EvaluationAccepted(judges=[self.author.describe(), self.challenge_judge.describe()])


def plan_simulation(request: SimulateDialogueRequest, registry: Registry) -> SimulationPlan:
    """Plans a dialogue for a request that is within the contract's limits.

    Args:
        request: The request.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN;
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    found = [*check_selections(request.judges, _ROLES, registry.roles), *check_alone(request.judges, _ROLES)]
    if found:
        raise invalid_fields(found)
    (author,) = select_judges(request.judges, (AUTHOR,), registry, "")
    (challenge_judge,) = select_judges(request.judges, (CHALLENGE_JUDGE,), registry, request.options.model)
    shadows = select_shadows(request.shadows, [challenge_judge], registry)
    return SimulationPlan(request, author, challenge_judge, shadows)
