"""The seven criteria of ABSEval (section 3.1).

Each is worded so that PASS is good. Other judges define their own criteria, in lower snake case.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import FindingKind
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale

NO_MISSING_STEPS = "no_missing_steps"
"""No step that the goal needs is missing (NM)."""
NO_REDUNDANT_STEPS = "no_redundant_steps"
"""Every step serves the goal (NR)."""
NO_DUPLICATE_STEPS = "no_duplicate_steps"
"""No step repeats another one (ND)."""
EXECUTABLE = "executable"
"""Every step agrees with common sense (EX)."""
SATISFIES_CONSTRAINTS = "satisfies_constraints"
"""The script respects the constraints of the task (SC)."""
COMPLETES_GOAL = "completes_goal"
"""Following the script reaches the goal (CG)."""
ORDER_CORRECT = "order_correct"
"""No step precedes a step that it depends on (OC)."""

ABSEVAL: tuple[str, ...] = (
    NO_MISSING_STEPS,
    NO_REDUNDANT_STEPS,
    NO_DUPLICATE_STEPS,
    EXECUTABLE,
    SATISFIES_CONSTRAINTS,
    COMPLETES_GOAL,
    ORDER_CORRECT,
)
"""All seven, in the paper's order."""

FINDING_KINDS: Mapping[str, FindingKind.ValueType] = MappingProxyType(
    {
        NO_MISSING_STEPS: verdict_pb2.FINDING_KIND_MISSING_STEP,
        NO_REDUNDANT_STEPS: verdict_pb2.FINDING_KIND_REDUNDANT_STEP,
        NO_DUPLICATE_STEPS: verdict_pb2.FINDING_KIND_DUPLICATE_STEP,
        EXECUTABLE: verdict_pb2.FINDING_KIND_IMPLAUSIBLE_STEP,
        SATISFIES_CONSTRAINTS: verdict_pb2.FINDING_KIND_BROKEN_CONSTRAINT,
        COMPLETES_GOAL: verdict_pb2.FINDING_KIND_GOAL_NOT_REACHED,
        ORDER_CORRECT: verdict_pb2.FINDING_KIND_WRONG_ORDER,
    }
)
"""The kind of finding that violates each criterion."""


def scale_problem(scale: CriterionScale) -> str:
    """The reason why a scale cannot be used, as a predicate; empty: it can."""
    if scale.lowest >= scale.highest:
        return f"must have a highest score above the lowest, not {scale.lowest} to {scale.highest}"
    values = [anchor.value for anchor in scale.anchors]
    for value in values:
        if not scale.lowest <= value <= scale.highest:
            return f"has an anchor at {value}, which is not from {scale.lowest} to {scale.highest}"
    if len(set(values)) < len(values):
        return "has two anchors at one score"
    return ""
