"""The sections of an answer, each of which answers one criterion, and their common parts.

Every section checks that findings and outcome agree. A "pass" with a finding and a "fail" whose items all
pass are contradictions. A section with items has a verdict on each (constraint or step), then one on the
whole. Every constraint has an entry. Of steps only those that do not pass need one: a script may have
hundreds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Finding, FindingKind, Severity, StepNote, Verdict
from dramaturg.judge.shapes import ENTRY_CHARACTERS, Choice, ListOf, Number, Record, Shape, Text
from dramaturg.judge.short_answers import option_of, options_of
from dramaturg.judge.verdicts import abstained, failed, finding, passed

PASS = "pass"  # noqa: S105
"""The word for a criterion that is met."""
FAIL = "fail"
"""The word for a criterion that is not met."""
UNSURE = "unsure"
"""The word for an undecided criterion."""
OUTCOME = Choice((PASS, FAIL, UNSURE))
"""The shape of a member "verdict"."""
LISTED = Choice(OUTCOME.options, accepts_any=True)
"""The shape of a member "verdict" of an entry that may be left out."""
_SEVERITIES = {
    "minor": verdict_pb2.SEVERITY_MINOR,
    "major": verdict_pb2.SEVERITY_MAJOR,
    "critical": verdict_pb2.SEVERITY_CRITICAL,
}
_SEVERITY = "severity"
GRADED = {_SEVERITY: Choice(tuple(_SEVERITIES), accepts_any=True, optional=True)}
"""The member of an entry about a fault that says how grave it is."""
GRADED_OR_PASSING = {_SEVERITY: Choice(("none", *_SEVERITIES), accepts_any=True, optional=True)}
"""The same of an entry that may pass."""
_WORDS = frozenset(OUTCOME.options)
_ABSENT = options_of({"none": True, "null": True, "n/a": True})
"""The words that stand for an absent value."""

MALFORMED = "The answer to this criterion is not of the form asked for."
"""The explanation for an unreadable section."""


class Section(Protocol):
    """The part of an answer that judges one criterion."""

    @property
    def shape(self) -> Shape:
        """The shape of the section."""

    def parse(self, criterion: str, value: Any) -> Verdict:
        """Reads the section, which may be any JSON value. Unclear values are abstentions."""


def stated_outcome(value: Any) -> str | None:
    """Returns the outcome of a member "verdict", or None where it is unclear."""
    stated = value.get("verdict") if isinstance(value, dict) else None
    if not isinstance(stated, str):
        return None
    return stated if stated in _WORDS else option_of(stated, OUTCOME.options)


def stated_text(value: Any, member: str) -> str:
    """Returns the text of a member; blank where it has none."""
    text = value.get(member) if isinstance(value, dict) else None
    return text.strip() if isinstance(text, str) else ""


def stated_severity(entry: Mapping[str, Any]) -> Severity.ValueType:
    """Returns how grave a fault is by its entry; unspecified where the entry does not say it readably."""
    text = stated_text(entry, _SEVERITY)
    stated = text if text in _SEVERITIES else option_of(text, tuple(_SEVERITIES)) if text else None
    return _SEVERITIES[stated] if stated else verdict_pb2.SEVERITY_UNSPECIFIED


def is_absent(text: str) -> bool:
    """Whether a text says that there is nothing: "None. There are no such steps."."""
    return bool(_ABSENT.value_of(text))


def states_nothing(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of a list says that there is nothing to list."""
    values = [value for name, value in entry.items() if name != _SEVERITY]
    texts = [text.strip() for text in values if isinstance(text, str) and text.strip()]
    others = [value for value in values if not isinstance(value, str) and value not in (None, [], 0)]
    return not others and all(map(is_absent, texts))


def stated_steps(numbers: Any, step_count: int) -> tuple[list[int], list[str]]:
    """Returns the named steps, from 0, and the unknown ones as text. In prompts steps count from 1."""
    indices: list[int] = []
    unknown: list[str] = []
    for number in numbers if isinstance(numbers, list) else ():
        if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= step_count:
            indices.append(number - 1)
        else:
            unknown.append(str(number))
    return indices, unknown


def unknown_steps_note(unknown: Sequence[str]) -> str:
    """Returns the note on unknown steps; empty where there are none."""
    if not unknown:
        return ""
    return f" (The judge also named step {', '.join(unknown)}, which does not exist.)"


def contradiction(criterion: str, reason: str, what: str, findings: Sequence[Finding] = ()) -> Verdict:
    """Returns the abstention from a criterion whose findings and outcome disagree."""
    rationale = f"{reason} (The answer contradicts itself: it {what}.)".strip()
    return abstained(criterion, verdict_pb2.ABSTAIN_REASON_CONTRADICTORY, rationale, findings)


_NUMBERS = {
    "constraint": "its number; each once",
    "step": "a step's number; leave out steps that pass",
}
_REASONS = {
    "constraint": "what keeps to it or breaks it",
    "step": "what is wrong with it",
}
_MOST_STEPS = 20
"""The maximum number of steps in a list."""


@dataclass(frozen=True)
class ItemsSection:
    """A section with a reason and a verdict for each item, then an overall verdict."""

    kind: FindingKind.ValueType
    """The kind of finding of a failed item."""
    list_name: str
    """The member with the items."""
    item_name: str
    """The member with an item's number, which is also the noun for an item."""
    contents: tuple[str, ...]
    """The items as worded in the task; blank where findings do not quote them."""
    step_count: int = 0
    """The number of steps of the candidate, where items can name steps."""
    lists_faults: bool = False
    """Whether an item without an entry passes."""
    graded: bool = False
    """Whether entries say how grave a fault is."""

    @classmethod
    def constraints(
        cls, constraints: Sequence[str], step_count: int, *, graded: bool = False
    ) -> ItemsSection:
        """Makes a section with one item per constraint."""
        kind = verdict_pb2.FINDING_KIND_BROKEN_CONSTRAINT
        return cls(kind, "constraints", "constraint", tuple(constraints), step_count, graded=graded)

    @classmethod
    def steps(cls, step_count: int, *, graded: bool = False) -> ItemsSection:
        """Makes a section with one item for each step that does not pass."""
        kind = verdict_pb2.FINDING_KIND_IMPLAUSIBLE_STEP
        return cls(kind, "steps", "step", ("",) * step_count, lists_faults=True, graded=graded)

    @property
    def shape(self) -> Record:
        """The items, then the verdict."""
        members: dict[str, Shape] = {
            self.item_name: Number(_NUMBERS[self.item_name]),
            "reason": Text(_REASONS[self.item_name], optional=True, most=ENTRY_CHARACTERS),
        }
        if self.step_count:
            steps = Number("the number of a step that breaks it")
            members["steps"] = ListOf(steps, optional=True, most=_MOST_STEPS)
        if self.graded:
            members |= GRADED_OR_PASSING
        # "pass" stays among the words: models that list every step must not have to fail them.
        members["verdict"] = LISTED if self.lists_faults else OUTCOME
        if self.lists_faults:
            entries = ListOf(Record(members), optional=True, most=_MOST_STEPS)
        else:
            entries = ListOf(Record(members), least=len(self.contents), most=len(self.contents))
        return Record({self.list_name: entries, "verdict": OUTCOME})

    def parse(self, criterion: str, value: Any) -> Verdict:
        """Reads the section. The score is the share of items that pass, where all are decided.

        Where the section lists faults, an entry that cannot be read is left out, and its step has no verdict.
        """
        outcome = stated_outcome(value)
        entries = value.get(self.list_name) if isinstance(value, dict) else None
        if self.lists_faults and entries is None:
            entries = []
        if outcome is None or not isinstance(entries, list):
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, MALFORMED)
        known: list[_Judged] = []
        strange: set[str] = set()
        unread = 0
        for entry in entries:
            judged = self._read(entry)
            if judged is None and self.lists_faults and outcome != PASS:
                unread += 1
                continue
            if judged is None:
                return abstained(criterion, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, MALFORMED)
            if 1 <= judged.number <= len(self.contents):
                known.append(judged)
            else:
                strange.add(str(judged.number))
        rationale = self._rationale(known, strange)
        decided: dict[int, str] = {}
        for number, said, *_ in known:
            if decided.setdefault(number, said) != said:
                return contradiction(criterion, rationale, f"judges {self.item_name} {number} in two ways")
        findings = [self._finding(judged) for judged in known if judged.outcome == FAIL]
        if self.lists_faults and outcome == FAIL and not entries:
            # Like a section of findings: the verdict is clear, and which steps it is about is not.
            return failed(criterion, rationale=rationale)
        if self.lists_faults and not unread:
            decided = dict.fromkeys(range(1, len(self.contents) + 1), PASS) | decided
        return self._decide(criterion, outcome, [*decided.values()], rationale, findings)

    def _decide(
        self,
        criterion: str,
        outcome: str,
        decided: Sequence[str],
        rationale: str,
        findings: Sequence[Finding],
    ) -> Verdict:
        complete = len(decided) == len(self.contents)
        if outcome == PASS:
            if FAIL in decided:
                return contradiction(
                    criterion, rationale, f"passes, though a {self.item_name} fails", findings
                )
            if not complete:
                missing = f" The answer does not judge every {self.item_name}."
                return abstained(criterion, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, rationale + missing)
        elif outcome == FAIL and FAIL not in decided:
            return contradiction(criterion, rationale, f"fails, though no {self.item_name} does")
        if outcome == UNSURE or (outcome == PASS and UNSURE in decided):
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE, rationale, findings)
        score = decided.count(PASS) / len(decided) if complete and UNSURE not in decided else None
        if outcome == PASS:
            return passed(criterion, rationale=rationale, score=score)
        return failed(criterion, findings, rationale=rationale, score=score)

    def _read(self, entry: Any) -> _Judged | None:
        """Reads one entry of the list. None: it lacks the item or the outcome."""
        outcome = stated_outcome(entry)
        number = None if outcome is None else entry.get(self.item_name)
        if outcome is None or not isinstance(number, int) or isinstance(number, bool):
            return None
        return _Judged(number, outcome, stated_text(entry, "reason"), entry)

    def _finding(self, judged: _Judged) -> Finding:
        severity = stated_severity(judged.entry)
        if self.item_name == "step":
            return finding(self.kind, judged.reason, steps=[judged.number - 1], severity=severity)
        steps, unknown = stated_steps(judged.entry.get("steps"), self.step_count)
        return finding(
            self.kind,
            judged.reason + unknown_steps_note(unknown),
            steps=steps,
            constraint=self.contents[judged.number - 1],
            severity=severity,
        )

    def _rationale(self, known: Sequence[_Judged], strange: Collection[str]) -> str:
        name = self.item_name.capitalize()
        lines = [f"{name} {number} ({outcome}): {reason}" for number, outcome, reason, *_ in known if reason]
        if len(lines) < len(known):
            for outcome in OUTCOME.options:
                silent = [str(number) for number, said, reason, *_ in known if said == outcome and not reason]
                if silent:
                    lines.append(f"{name} {', '.join(silent)} ({outcome})")
        if strange:
            numbers = ", ".join(sorted(strange))
            lines.append(f"(The answer also judges {self.item_name} {numbers}, which does not exist.)")
        return "\n".join(lines).rstrip()


class _Judged(NamedTuple):
    """The verdict on one item."""

    number: int
    """The item's number."""
    outcome: str
    """The outcome."""
    reason: str
    """The reason; may be blank."""
    entry: Mapping[str, Any]
    """All that the model wrote of it."""


_OUTCOMES = {
    "yes": verdict_pb2.OUTCOME_PASS,
    "no": verdict_pb2.OUTCOME_FAIL,
    "unsure": verdict_pb2.OUTCOME_ABSTAIN,
}

SHAPE = ListOf(
    Record(
        {
            "step": Number("a step's number; leave out steps that can be done"),
            "needs": Text("what it needs that is not there", optional=True, most=ENTRY_CHARACTERS),
            "possible": Choice(("yes", "no", "unsure"), accepts_any=True),
        }
    ),
    most=20,
)
"""The shape of the notes: steps that can be done need none."""


def read_step_notes(value: Any, step_count: int) -> list[StepNote]:
    """Reads the notes, ascending by step.

    Entries that are not of the form, steps that the candidate does not have, and further entries of a step
    are left out: the notes support verdicts and do not replace them.

    Args:
        value: Any JSON value.
        step_count: The number of steps of the candidate.
    """
    notes: dict[int, StepNote] = {}
    for entry in value if isinstance(value, list) else ():
        number = entry.get("step") if isinstance(entry, dict) else None
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= step_count:
            continue
        possible = option_of(stated_text(entry, "possible"), tuple(_OUTCOMES))
        note = StepNote(
            step_index=number - 1,
            needs=stated_text(entry, "needs"),
            leaves=stated_text(entry, "after"),
            outcome=_OUTCOMES.get(possible or "", verdict_pb2.OUTCOME_UNSPECIFIED),
        )
        notes.setdefault(number, note)
    return [notes[number] for number in sorted(notes)]
