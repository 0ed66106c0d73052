"""Whether a script takes up a constraint, by words and vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from services.agents.offline.embeddings import Floats
from services.agents.offline.lexicon import ABSENCE_OR_QUANTITY, FUNCTION_WORDS
from services.agents.offline.wording import words

_STEM_LENGTH = 5


@dataclass(frozen=True)
class LogisticModel:
    """The probability that a script was written for a constraint, from three features."""

    intercept: float
    nearest_step: float
    """Of the cosine of the constraint and the step nearest to it."""
    whole_script: float
    """Of the cosine of the constraint and the whole script."""
    keywords: float
    """Of the share of the constraint's content words that the script has."""

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
    """What is seen of a constraint in a script."""

    nearest_step: float
    whole_script: float
    keywords: float


def undecidable_word(constraint: str) -> str | None:
    """The word or number that makes a constraint one of absence or quantity; None for a plain one.

    A script that breaks "without an oven" speaks of an oven, and so does the constraint: similarity says
    nothing, or the contrary. Numbers and amounts are all alike to an encoder.
    """
    for word in words(constraint):
        if word[0].isdigit() or word in ABSENCE_OR_QUANTITY or word.endswith(("less", "n't")):
            return word
    return None


def measure(constraint: str, vector: Floats, script: str, script_vector: Floats, steps: Floats) -> Features:
    """Measures how far a script takes a constraint up.

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
