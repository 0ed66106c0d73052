"""How long the request being served may take."""

from __future__ import annotations

from dataclasses import dataclass

from dramaturg.service import context
from services.generation.deadlines import Deadline, Until


@dataclass(frozen=True, slots=True)
class Patience:
    """The time that a request gets.

    Attributes:
        maximum: Seconds for a request without a deadline.
        reserve: Seconds kept of a deadline, to still say why a request failed.
    """

    maximum: float
    reserve: float

    def deadline(self) -> Deadline:
        """The deadline of the request being served."""
        remaining = context.remaining()
        return Until(self.maximum if remaining is None else remaining - self.reserve)
