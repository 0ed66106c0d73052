"""The notes on steps of a judge that carries out a script, read from its answer."""

from __future__ import annotations

from typing import Any

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import StepNote
from dramaturg.judge.sections import stated_text
from dramaturg.judge.shapes import Choice, ListOf, Number, Record, Text
from dramaturg.judge.short_answers import option_of

_OUTCOMES = {
    "yes": verdict_pb2.OUTCOME_PASS,
    "no": verdict_pb2.OUTCOME_FAIL,
    "unsure": verdict_pb2.OUTCOME_ABSTAIN,
}

SHAPE = ListOf(
    Record(
        {
            "step": Number("a step's number; leave out steps that can be done"),
            "needs": Text("what it needs that is not there", optional=True),
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
