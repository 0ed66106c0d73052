"""The interface of text metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


class TextPair(NamedTuple):
    """A text and its reference."""

    candidate: str
    reference: str


@dataclass(frozen=True)
class Undefined:
    """An undefined score with its reason."""

    reason: str


class Metric(Protocol):
    """Compares a candidate with a reference."""

    @property
    def method(self) -> str:
        """How the metric is computed: library, version, settings, deviations."""

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """The score, in [0, 1] unless the metric says otherwise; higher is more alike."""


def blank(candidate: str, reference: str) -> Undefined | None:
    """The undefined score of a blank text; ``None`` if neither is blank."""
    for name, text in (("candidate", candidate), ("reference", reference)):
        if not text.strip():
            return Undefined(f"the {name} is empty")
    return None


class NotComputed:
    """A metric without vectors: undefined for all texts.

    Args:
        reason: Why there are no vectors.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    @property
    def method(self) -> str:
        return f"not computed: {self._reason}"

    def score(self, candidate: str, reference: str) -> float | Undefined:
        """Undefined for all texts."""
        del candidate, reference
        return Undefined(self._reason)
