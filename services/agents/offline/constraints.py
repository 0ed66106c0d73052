"""Whether a script addresses a constraint, by words and vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from services.agents.offline.material import Floats
from services.agents.offline.wording import ABSENCE_OR_QUANTITY, FUNCTION_WORDS, words

_STEM_LENGTH = 5


@dataclass(frozen=True)
class LogisticModel:
    """The probability that a script was written for a constraint, from three features."""

    intercept: float
    nearest_step: float
    """The weight of the cosine of the constraint and its nearest step."""
    whole_script: float
    """The weight of the cosine of the constraint and the whole script."""
    keywords: float
    """The weight of the share of the constraint's content words that the script has."""

    def probability(self, features: Features) -> float:
        logit = (
            self.intercept
            + self.nearest_step * features.nearest_step
            + self.whole_script * features.whole_script
            + self.keywords * features.keywords
        )
        return 1 / (1 + math.exp(-logit))


@dataclass(frozen=True)
class Features:
    """The features of a constraint in a script."""

    nearest_step: float
    whole_script: float
    keywords: float


def undecidable_word(constraint: str) -> str | None:
    """Returns the word or number of a constraint of absence or quantity; None for other constraints.

    Similarity misleads for these: a script that violates "without an oven" mentions an oven, as the
    constraint does. Different numbers and amounts have nearly equal embeddings.
    """
    for word in words(constraint):
        if word[0].isdigit() or word in ABSENCE_OR_QUANTITY or word.endswith(("less", "n't")):
            return word
    return None


def measure(constraint: str, vector: Floats, script: str, script_vector: Floats, steps: Floats) -> Features:
    """Measures the features of a constraint in a script.

    Args:
        constraint: The constraint.
        vector: Its unit vector, (dimension,).
        script: The whole script.
        script_vector: Its unit vector, (dimension,).
        steps: The unit vectors of its steps, (steps, dimension), at least one.
    """
    return Features(
        nearest_step=float(np.max(steps @ vector)),
        whole_script=float(script_vector @ vector),
        keywords=_keywords(constraint, script),
    )


def _keywords(constraint: str, script: str) -> float:
    wanted = {word[:_STEM_LENGTH] for word in words(constraint) if word not in FUNCTION_WORDS}
    if not wanted:
        return 0.0
    present = {word[:_STEM_LENGTH] for word in words(script)}
    return len(wanted & present) / len(wanted)
