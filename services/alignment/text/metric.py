"""What a text metric is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Undefined:
    """A score that is not defined for two texts, and why."""

    reason: str


class Metric(Protocol):
    """Compares a candidate with a reference."""

    @property
    def method(self) -> str:
        """How it is computed: library, version, settings, and what is left out."""

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """The score, in [0, 1] unless the metric says otherwise; higher is more alike."""


def blank(candidate: str, reference: str) -> Undefined | None:
    """What to say where one of the texts has nothing but white space."""
    for name, text in (("candidate", candidate), ("reference", reference)):
        if not text.strip():
            return Undefined(f"the {name} is empty")
    return None
