"""What an abstention counts as."""

from __future__ import annotations

from enum import Enum


class AbstentionPolicy(Enum):
    """What an abstention counts as."""

    EXCLUDED = "left out"
    WRONG = "a wrong answer"
    WORST_CASE = "whatever makes the figure worst"
