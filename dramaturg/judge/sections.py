"""The common parts of sections, each of which answers one criterion.

Every section checks that findings and outcome agree. A "pass" with a finding and a "fail" whose items all
pass are contradictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Finding, Severity, Verdict
from dramaturg.judge.shapes import Choice, Shape
from dramaturg.judge.short_answers import option_of, options_of
from dramaturg.judge.verdicts import abstained

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
    stated = option_of(stated_text(entry, _SEVERITY), tuple(_SEVERITIES))
    return _SEVERITIES[stated] if stated else verdict_pb2.SEVERITY_UNSPECIFIED


def states_nothing(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of a list says that there is nothing to list: "None. There are no such steps."."""
    values = [value for name, value in entry.items() if name != _SEVERITY]
    texts = [text.strip() for text in values if isinstance(text, str) and text.strip()]
    others = [value for value in values if not isinstance(value, str) and value not in (None, [], 0)]
    return not others and all(map(_ABSENT.value_of, texts))


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
