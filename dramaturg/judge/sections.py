"""How one criterion is answered and read: what the kinds of section have in common.

Every section checks that what was found and what was decided agree. A "pass" beside a fault contradicts
itself, and so does a "fail" where every item passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Finding, Verdict
from dramaturg.judge.shapes import Choice, Shape
from dramaturg.judge.verdicts import abstained

PASS = "pass"  # noqa: S105
"""The word for a criterion that is met."""
FAIL = "fail"
"""The word for a criterion that is not met."""
UNSURE = "unsure"
"""The word for a criterion that could not be decided."""
OUTCOME = Choice((PASS, FAIL, UNSURE))
"""How a member "verdict" is answered."""
_WORDS = frozenset(OUTCOME.options)

MALFORMED = "The answer to this criterion is not of the form asked for."
"""What is said of a section that cannot be read."""


class Section(Protocol):
    """The part of an answer that judges one criterion."""

    @property
    def shape(self) -> Shape:
        """What it must look like."""

    def parse(self, criterion: str, value: Any) -> Verdict:
        """Reads it: any JSON value. What is unclear is an abstention, never a PASS or a FAIL."""


def stated_outcome(value: Any) -> str | None:
    """The outcome that a member "verdict" states; None where it states none clearly."""
    stated = value.get("verdict") if isinstance(value, dict) else None
    if not isinstance(stated, str):
        return None
    word = stated if stated in _WORDS else stated.strip().lower()
    return word if word in _WORDS else None


def stated_text(value: Any, member: str) -> str:
    """The text of a member; blank where it has none."""
    text = value.get(member) if isinstance(value, dict) else None
    return text.strip() if isinstance(text, str) else ""


def stated_steps(numbers: Any, step_count: int) -> tuple[list[int], list[str]]:
    """The steps named, from 0, and in words those named that do not exist. In prompts steps count from 1."""
    indices: list[int] = []
    strangers: list[str] = []
    for number in numbers if isinstance(numbers, list) else ():
        if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= step_count:
            indices.append(number - 1)
        else:
            strangers.append(str(number))
    return indices, strangers


def strangers_note(strangers: Sequence[str]) -> str:
    """What is said of steps that were named and do not exist; nothing where there are none."""
    if not strangers:
        return ""
    return f" (The judge also named step {', '.join(strangers)}, which does not exist.)"


def contradiction(criterion: str, reason: str, what: str, findings: Sequence[Finding] = ()) -> Verdict:
    """The abstention from a criterion whose findings and outcome do not agree."""
    rationale = f"{reason} (The answer contradicts itself: it {what}.)".strip()
    return abstained(criterion, verdict_pb2.ABSTAIN_REASON_CONTRADICTORY, rationale, findings)
