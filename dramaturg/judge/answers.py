"""Forms of a model's answer. One class holds the schema, the instruction and the parser of a form.

In every form the reason comes first and the verdict last. A verdict is one of the words "pass", "fail" and
"unsure". Booleans are not used: their sense depends on the question. Every criterion is worded so that "pass"
is good. Any other verdict is an abstention.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Finding, FindingKind, StepNote, Verdict
from dramaturg.judge import criteria as names
from dramaturg.judge.sections import (
    GRADED,
    MALFORMED,
    OUTCOME,
    PASS,
    UNSURE,
    ItemsSection,
    Section,
    contradiction,
    is_absent,
    read_step_notes,
    stated_outcome,
    stated_severity,
    stated_steps,
    stated_text,
    states_nothing,
    unknown_steps_note,
)
from dramaturg.judge.shapes import ENTRY_CHARACTERS, MOST_CHARACTERS, ListOf, Number, Record, Shape, Text
from dramaturg.judge.steps import MAX_STEPS, is_blank, split_steps
from dramaturg.judge.verdicts import abstained, failed, finding, passed

_MOST_FINDINGS = 5
"""The maximum number of findings that a model may write."""
_MOST_STEPS = 10
"""The maximum number of steps of one finding."""
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
UNPARSABLE = verdict_pb2.ABSTAIN_REASON_UNPARSABLE
"""The reason of abstentions for unreadable answers."""

MAX_STEP_LENGTH = 20_000
"""The maximum length of a step in characters (``common.v1.Step``)."""

Parsed_co = TypeVar("Parsed_co", covariant=True)


@dataclass(frozen=True)
class FindingsSection:
    """A section with a reason, findings and the verdict."""

    kind: FindingKind.ValueType
    """The kind of the findings."""
    step_count: int
    """The number of steps of the candidate. 0: it is read as text, and findings name no steps."""
    graded: bool = False
    """Whether findings say how grave a fault is."""

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
        entries = [
            entry
            for entry in entries
            if not (states_nothing(entry) or (outcome == PASS and _names_no_problem(entry)))
        ]
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
            members["missing_step"] = Text(
                "the step that should be there", optional=True, most=ENTRY_CHARACTERS
            )
        if self.step_count:
            members["steps"] = ListOf(
                Number(
                    "the number of the step before it; 0: it comes first"
                    if self._missing
                    else "a step's number"
                ),
                optional=True,
                most=1 if self._missing else _MOST_STEPS,
            )
        members["problem"] = Text(_PROBLEMS[self.kind], optional=True, most=ENTRY_CHARACTERS)
        return members | GRADED if self.graded else members

    def _finding(self, entry: Mapping[str, Any]) -> Finding:
        steps, unknown = stated_steps(entry.get("steps"), self.step_count)
        # Position 0, before the first step, names no step.
        unknown = [step for step in unknown if not (self._missing and step == "0")]
        return finding(
            self.kind,
            stated_text(entry, "problem") + unknown_steps_note(unknown),
            steps=steps,
            missing_step=stated_text(entry, "missing_step") if self._missing else "",
            severity=stated_severity(entry),
        )

    def _is_grounded(self, entry: Mapping[str, Any]) -> bool:
        """Whether the finding concerns the candidate. A finding that names only unknown steps does not."""
        steps, unknown = stated_steps(entry.get("steps"), self.step_count)
        return self._missing or bool(steps) or not unknown


def _names_no_problem(entry: Mapping[str, Any]) -> bool:
    """Whether a finding says of the steps that it names that they have no problem: "problem": "none"."""
    others = {name: value for name, value in entry.items() if name != "steps"}
    return is_absent(stated_text(entry, "problem")) and states_nothing(others)


class UnclearAnswerError(ValueError):
    """An answer without a readable judgement.

    Attributes:
        reason: The reason of the abstention.
    """

    def __init__(self, message: str, reason: AbstainReason.ValueType = UNPARSABLE) -> None:
        super().__init__(message)
        self.reason = reason


class AnswerForm(Protocol[Parsed_co]):
    """The form of an answer: its shape and its parser."""

    @property
    def name(self) -> str:
        """The form's name (``[a-zA-Z0-9_-]+``), for providers that require one."""

    @property
    def shape(self) -> Shape:
        """The shape of the answer."""

    def parse(self, value: Any) -> Parsed_co:
        """Reads an answer, which may be any JSON value.

        Raises:
            UnclearAnswerError: The answer is unreadable.
        """


def schema(form: AnswerForm[object]) -> str:
    """The JSON Schema of a form, as JSON text."""
    return _schema(form.shape)


def accepted_schema(form: AnswerForm[object]) -> str:
    """The JSON Schema that is enough for an answer, as JSON text; empty: the schema of the form."""
    return _accepted_schema(form.shape)


def instruction(form: AnswerForm[object]) -> str:
    """The instruction for a form in a prompt."""
    return _instruction(form.shape)


# Cached: a run uses few forms of verdicts, each thousands of times.
@lru_cache(maxsize=256)
def _schema(shape: Shape) -> str:
    return json.dumps(shape.schema(), ensure_ascii=False)


@lru_cache(maxsize=256)
def _accepted_schema(shape: Shape) -> str:
    accepted = json.dumps(shape.schema(accepted=True), ensure_ascii=False)
    return "" if accepted == _schema(shape) else accepted


@lru_cache(maxsize=256)
def _instruction(shape: Shape) -> str:
    sketch = shape.sketch()
    lists = " Lists may be empty." if ListOf.ELLIPSIS in sketch else ""
    return f"Answer with one JSON object and nothing else, its members in this order.{lists}\n{sketch}"


STEP_NOTES = "walk"
"""The member of the reasoning with notes on steps, in the shape of ``step_notes.SHAPE``."""


class Verdicts(list[Verdict]):
    """Verdicts in order, with the notes on steps that precede them.

    Args:
        verdicts: The verdicts.
        step_notes: The notes. Empty: the form has none.
    """

    def __init__(self, verdicts: Iterable[Verdict] = (), step_notes: Sequence[StepNote] = ()) -> None:
        super().__init__(verdicts)
        self.step_notes = step_notes


@dataclass(frozen=True, eq=False)
class VerdictsForm:
    """The form of verdicts on several criteria, after reasoning that is the judge's own."""

    sections: Mapping[str, Section]
    """The section of each criterion, in the order asked."""
    reasoning: Mapping[str, Shape] = field(default_factory=dict)
    """The members that precede the sections."""
    step_count: int = 0
    """The number of steps of the candidate; 0 where it is read as text."""

    @classmethod
    def of(
        cls,
        criteria: Sequence[str],
        *,
        step_count: int,
        constraints: Sequence[str],
        reasoning: Mapping[str, Shape] = MappingProxyType({}),
        graded: bool = False,
    ) -> VerdictsForm:
        """The form for some of ABSEval's criteria.

        Args:
            criteria: The criteria, in order.
            step_count: The number of steps of the candidate; 0 where it is read as text.
            constraints: The task's constraints.
            reasoning: The members that precede the verdicts.
            graded: Whether findings say how grave a fault is.
        """
        shown = tuple(reasoning.items())
        return _verdicts_form(tuple(criteria), step_count, tuple(constraints), shown, graded=graded)

    @property
    def name(self) -> str:
        """The form's name."""
        return "verdicts"

    @cached_property
    def shape(self) -> Record:
        """The reasoning, then a section for each criterion."""
        reasoning = {name: _optional(shape) for name, shape in self.reasoning.items()}
        return Record({**reasoning, **{name: one.shape for name, one in self.sections.items()}})

    def parse(self, value: Any) -> Verdicts:
        """Returns one verdict for each criterion, in order. Unreadable sections are abstentions."""
        if not isinstance(value, Mapping):
            raise UnclearAnswerError("the answer is no JSON object")
        verdicts = [
            section.parse(criterion, value[criterion])
            if criterion in value
            else abstained(criterion, UNPARSABLE, "The answer does not judge this criterion.")
            for criterion, section in self.sections.items()
        ]
        noted = STEP_NOTES in self.reasoning
        return Verdicts(verdicts, read_step_notes(value.get(STEP_NOTES), self.step_count) if noted else ())


@dataclass(frozen=True)
class StepsForm:
    """The form of considerations and a script."""

    @property
    def name(self) -> str:
        """The form's name."""
        return "script"

    @property
    def shape(self) -> Record:
        """The considerations, then the steps."""
        return Record(
            {
                "considerations": Text(
                    "what the script must achieve and what is worth adopting or avoiding",
                    optional=True,
                    most=MOST_CHARACTERS,
                ),
                "steps": ListOf(Text("one step, in one short sentence, without its number")),
            }
        )

    def parse(self, value: Any) -> tuple[str, ...]:
        """Returns the steps; none is blank.

        Raises:
            UnclearAnswerError: There are no steps, or one is not a text.
        """
        steps = value.get("steps") if isinstance(value, Mapping) else None
        if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
            raise UnclearAnswerError("the answer has no list of steps")
        written = tuple(step.strip() for step in steps if not is_blank(step))
        if not written:
            raise UnclearAnswerError("the answer has no steps")
        if len(written) > MAX_STEPS or max(map(len, written)) > MAX_STEP_LENGTH:
            raise UnclearAnswerError(
                f"the answer is no script: over {MAX_STEPS} steps or {MAX_STEP_LENGTH} characters in one"
            )
        # Some models number the steps despite the instruction.
        unmarked = split_steps("\n".join(written))
        return unmarked if len(unmarked) == len(written) else written


def _optional(shape: Shape) -> Shape:
    return replace(shape, optional=True) if isinstance(shape, Text | ListOf) else shape


@lru_cache(maxsize=256)
def _verdicts_form(
    criteria: tuple[str, ...],
    step_count: int,
    constraints: tuple[str, ...],
    reasoning: tuple[tuple[str, Shape], ...],
    *,
    graded: bool,
) -> VerdictsForm:
    sections = {one: _section(one, step_count, constraints, graded=graded) for one in criteria}
    return VerdictsForm(sections, dict(reasoning), step_count)


def _section(criterion: str, step_count: int, constraints: Sequence[str], *, graded: bool) -> Section:
    if criterion == names.SATISFIES_CONSTRAINTS:
        return ItemsSection.constraints(constraints, step_count, graded=graded)
    if criterion == names.EXECUTABLE and step_count:
        return ItemsSection.steps(step_count, graded=graded)
    return FindingsSection(names.FINDING_KINDS[criterion], step_count, graded)
