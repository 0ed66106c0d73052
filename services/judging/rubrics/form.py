"""The form of an answer by a rubric: for each criterion a reason, then a verdict or a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.judge.answers import VerdictsForm
from dramaturg.judge.sections import MALFORMED, OUTCOME, PASS, UNSURE, Section, stated_outcome, stated_text
from dramaturg.judge.shapes import Choice, Record, Text
from dramaturg.judge.verdicts import abstained, failed, passed, scored
from services.judging.reasoned_number import Scale

SCORED = "scored"
"""The word for a criterion that has a score."""

_REASON = Text("what in the text meets the criterion, and what does not", optional=True)
_STATE = Choice((SCORED, UNSURE))


@dataclass(frozen=True)
class VerdictSection:
    """A section with a reason and a verdict."""

    @property
    def shape(self) -> Record:
        """Reason, verdict."""
        return Record({"reason": _REASON, "verdict": OUTCOME})

    def parse(self, criterion: str, value: Any) -> Verdict:
        """Reads the section."""
        outcome, reason = stated_outcome(value), stated_text(value, "reason")
        if outcome is None:
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, MALFORMED)
        if outcome == UNSURE:
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE, reason)
        return (passed if outcome == PASS else failed)(criterion, rationale=reason)


class _ScoreRecord(Record):
    """A record of which a score alone is enough, and the verdict "unsure" without one."""

    def schema(self, *, accepted: bool = False) -> dict[str, Any]:
        schema = super().schema(accepted=accepted)
        if accepted:
            is_unsure = {"properties": {"verdict": {"const": UNSURE}}, "required": ["verdict"]}
            schema |= {"required": [], "anyOf": [{"required": ["score"]}, is_unsure]}
        return schema


@dataclass(frozen=True)
class ScoreSection:
    """A section with a reason, whether there is a score, and the score. It is a whole number on the scale."""

    lowest: int
    highest: int

    @property
    def shape(self) -> Record:
        """Reason, state, score."""
        hint = f"the score, a whole number from {self.lowest} to {self.highest}"
        scale = Scale(hint, self.lowest, self.highest)
        return _ScoreRecord({"reason": _REASON, "verdict": _STATE, "score": scale})

    def parse(self, criterion: str, value: Any) -> Verdict:
        """Reads the section."""
        state = value.get("verdict") if isinstance(value, dict) else None
        reason = stated_text(value, "reason")
        if state == UNSURE:
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE, reason)
        score = value.get("score") if state in (SCORED, None) and isinstance(value, dict) else None
        # In Python, True and False are ints.
        if not isinstance(score, int) or isinstance(score, bool):
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, MALFORMED)
        if not self.lowest <= score <= self.highest:
            off = f"The score {score} is not from {self.lowest} to {self.highest}."
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, off)
        return scored(criterion, score, rationale=reason)


def rubric_form(criteria: Sequence[str], scales: Sequence[tuple[int, int] | None]) -> VerdictsForm:
    """The form for a rubric.

    Args:
        criteria: The ids, in order.
        scales: The lowest and highest score of each; None for one that passes or fails.
    """
    return _form(tuple(criteria), tuple(scales))


# Cached: the rows of a run have the same rubric. Schemas are cached by the identity of the shape.
@lru_cache(maxsize=256)
def _form(criteria: tuple[str, ...], scales: tuple[tuple[int, int] | None, ...]) -> VerdictsForm:
    sections: dict[str, Section] = {
        name: VerdictSection() if scale is None else ScoreSection(*scale)
        for name, scale in zip(criteria, scales, strict=True)
    }
    return VerdictsForm(sections)
