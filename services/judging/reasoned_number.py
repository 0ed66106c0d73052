"""The form of answers with a reason and an integer between two bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dramaturg.judge.answers import UnclearAnswerError
from dramaturg.judge.shapes import Record, Text


@dataclass(frozen=True)
class Scale:
    """The shape of an integer from ``lowest`` to ``highest``, both included."""

    hint: str
    """A description of the number with its bounds. It does not depend on the request, unlike the bounds."""
    lowest: int
    highest: int

    def schema(self, *, accepted: bool = False) -> dict[str, Any]:
        del accepted
        return {"type": "integer", "minimum": self.lowest, "maximum": self.highest}

    def sketch(self, indent: str = "") -> str:
        del indent
        return f"<{self.hint}>"


class ReasonedNumber(NamedTuple):
    """A parsed answer."""

    reason: str
    """The reason, given before the number."""
    number: int
    """The number, on the scale."""


@dataclass(frozen=True)
class ReasonedNumberForm:
    """The form of a reason and a number. Numbers off the scale, several or none are unclear answers."""

    name: str
    """The name of the form and of the member with the number."""
    reason: str
    """A description of the expected reason."""
    scale: Scale

    @property
    def shape(self) -> Record:
        """The reason, then the number."""
        return Record({"reason": Text(self.reason, optional=True), self.name: self.scale})

    def parse(self, value: Any) -> ReasonedNumber:
        """Reads an answer.

        Raises:
            UnclearAnswerError: There is no number, or it is not on the scale.
        """
        members = value if isinstance(value, Mapping) else {}
        number, reason = members.get(self.name), members.get("reason")
        # In Python, True and False are ints.
        if not isinstance(number, int) or isinstance(number, bool):
            raise UnclearAnswerError(f"the {self.name} is no whole number")
        if not self.scale.lowest <= number <= self.scale.highest:
            raise UnclearAnswerError(
                f"the {self.name} {number} is not from {self.scale.lowest} to {self.scale.highest}"
            )
        return ReasonedNumber(reason.strip() if isinstance(reason, str) else "", number)
