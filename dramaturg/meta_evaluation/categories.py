"""Categories of faults, the criterion that each breaks (ABSEval, Table 4), and the tags of faulty scripts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from dramaturg.api.generation.v1 import authoring_datasets_pb2 as pb
from dramaturg.judge import criteria

BY_MODEL = "model"
"""The operation name of faults written by a model; others have the name of their rule."""
CATEGORY_TAG = "perturbation"
"""The tag that names the category of the fault; ``UNTOUCHED`` where there is none."""
OPERATION_TAG = "operation"
"""The tag that names how the fault was made; ``UNTOUCHED`` where there is none."""
CANDIDATE_TAG = "candidate"
"""The tag that names the candidate that has the fault."""
LINE_TAG = "source_line"
"""The tag that names the line of the row that it was made of."""
UNTOUCHED = "none"
"""The category and operation of a script as it was."""


class Category(StrEnum):
    """A category of faults (``generation.v1.PerturbationCategory``)."""

    MISSING_STEPS = "missing-steps"
    REDUNDANT_STEPS = "redundant-steps"
    DUPLICATE_STEPS = "duplicate-steps"
    BROKEN_CONSTRAINT = "broken-constraint"
    GOAL_NOT_REACHED = "goal-not-reached"
    WRONG_ORDER = "wrong-order"

    @property
    def number(self) -> pb.PerturbationCategory.ValueType:
        """The enum value in the contract."""
        return pb.PerturbationCategory.Value(f"PERTURBATION_CATEGORY_{self.name}")

    @property
    def criterion(self) -> str:
        """The criterion that the fault breaks."""
        return CRITERIA[self]


CRITERIA: Mapping[Category, str] = MappingProxyType(
    {
        Category.MISSING_STEPS: criteria.NO_MISSING_STEPS,
        Category.REDUNDANT_STEPS: criteria.NO_REDUNDANT_STEPS,
        Category.DUPLICATE_STEPS: criteria.NO_DUPLICATE_STEPS,
        Category.BROKEN_CONSTRAINT: criteria.SATISFIES_CONSTRAINTS,
        Category.GOAL_NOT_REACHED: criteria.COMPLETES_GOAL,
        Category.WRONG_ORDER: criteria.ORDER_CORRECT,
    }
)
"""The criterion that each category breaks. No category of ABSEval breaks ``executable``."""
