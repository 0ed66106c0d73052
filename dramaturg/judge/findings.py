"""The section of an answer with a reason, findings and a verdict on one criterion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Finding, FindingKind, Verdict
from dramaturg.judge.sections import (
    MALFORMED,
    OUTCOME,
    PASS,
    UNSURE,
    contradiction,
    stated_outcome,
    stated_steps,
    stated_text,
    states_nothing,
    unknown_steps_note,
)
from dramaturg.judge.shapes import ListOf, Number, Record, Shape, Text
from dramaturg.judge.verdicts import abstained, failed, finding, passed

_MOST_FINDINGS = 10
"""The maximum number of findings, and of the steps of one."""
_PROBLEMS = {
    verdict_pb2.FINDING_KIND_MISSING_STEP: "why the goal needs it",
    verdict_pb2.FINDING_KIND_REDUNDANT_STEP: "why this step does not serve the goal",
    verdict_pb2.FINDING_KIND_DUPLICATE_STEP: "what these steps repeat",
    verdict_pb2.FINDING_KIND_IMPLAUSIBLE_STEP: "why this cannot be done or goes against common sense",
    verdict_pb2.FINDING_KIND_GOAL_NOT_REACHED: "what of the goal is not reached",
    verdict_pb2.FINDING_KIND_WRONG_ORDER: "which step must come before which, and why",
}
_REASONS = {
    verdict_pb2.FINDING_KIND_MISSING_STEP: "which steps the goal needs, and which are absent",
    verdict_pb2.FINDING_KIND_REDUNDANT_STEP: "which steps do not serve the goal",
    verdict_pb2.FINDING_KIND_DUPLICATE_STEP: "which steps do the same",
    verdict_pb2.FINDING_KIND_IMPLAUSIBLE_STEP: "what cannot be done",
    verdict_pb2.FINDING_KIND_GOAL_NOT_REACHED: "what there is at the end, compared with the goal",
    verdict_pb2.FINDING_KIND_WRONG_ORDER: "which steps need others, and whether those come first",
}


@dataclass(frozen=True)
class FindingsSection:
    """A section with a reason, findings and the verdict."""

    kind: FindingKind.ValueType
    """The kind of the findings."""
    step_count: int
    """The number of steps of the candidate. 0: it is read as text, and findings name no steps."""

    @property
    def shape(self) -> Record:
        """Reason, findings, verdict."""
        return Record(
            {
                "reason": Text(_REASONS[self.kind], optional=True),
                "findings": ListOf(Record(self._finding_members()), optional=True, most=_MOST_FINDINGS),
                "verdict": OUTCOME,
            }
        )

    def parse(self, criterion: str, value: Any) -> Verdict:
        """Reads the section."""
        outcome = stated_outcome(value)
        entries = value.get("findings") or [] if isinstance(value, dict) else None
        reason = stated_text(value, "reason")
        if outcome is None or not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, MALFORMED)
        entries = [entry for entry in entries if not states_nothing(entry)]
        findings = [self._finding(entry) for entry in entries]
        if outcome == UNSURE:
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE, reason, findings)
        if outcome == PASS:
            if findings:
                return contradiction(criterion, reason, "passes, though something is wrong", findings)
            return passed(criterion, rationale=reason)
        if entries and not any(self._is_grounded(entry) for entry in entries):
            return contradiction(criterion, reason, "fails for steps that do not exist", findings)
        return failed(criterion, findings, rationale=reason)

    @property
    def _missing(self) -> bool:
        return self.kind == verdict_pb2.FINDING_KIND_MISSING_STEP

    def _finding_members(self) -> dict[str, Shape]:
        members: dict[str, Shape] = {}
        if self._missing:
            members["missing_step"] = Text("the step that should be there", optional=True)
        if self.step_count:
            members["steps"] = ListOf(
                Number(
                    "the number of the step before it; 0: it comes first"
                    if self._missing
                    else "a step's number"
                ),
                optional=True,
                most=1 if self._missing else _MOST_FINDINGS,
            )
        return members | {"problem": Text(_PROBLEMS[self.kind], optional=True)}

    def _finding(self, entry: Mapping[str, Any]) -> Finding:
        steps, unknown = stated_steps(entry.get("steps"), self.step_count)
        # Position 0, before the first step, names no step.
        unknown = [step for step in unknown if not (self._missing and step == "0")]
        return finding(
            self.kind,
            stated_text(entry, "problem") + unknown_steps_note(unknown),
            steps=steps,
            missing_step=stated_text(entry, "missing_step") if self._missing else "",
        )

    def _is_grounded(self, entry: Mapping[str, Any]) -> bool:
        """Whether the finding concerns the candidate. A finding that names only unknown steps does not."""
        steps, unknown = stated_steps(entry.get("steps"), self.step_count)
        return self._missing or bool(steps) or not unknown
