"""What a text metric is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


class TextPair(NamedTuple):
    """A text and what it is compared with."""

    candidate: str
    reference: str


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


class NotComputed:
    """Stands in the place of a metric whose vectors cannot be had.

    Args:
        reason: Why they cannot.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    @property
    def method(self) -> str:
        """See ``Metric``."""
        return f"not computed: {self._reason}"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """Undefined for all texts."""
        del candidate, reference
        return Undefined(self._reason)
