"""How fast a run goes: a few marks of how many samples were done when, kept beside its counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

_APART = 2_000_000
_KEPT = 64


class Mark(NamedTuple):
    """How many samples were done at a time."""

    time: int
    """In microseconds since 1970."""
    done: int
    """All done by then."""


def decode(text: str) -> Sequence[Mark]:
    """The marks, the oldest first."""
    return [Mark(*pair) for pair in json.loads(text)]


def begin(now: int, done: int) -> str:
    """The marks of a run that starts to work, or does again: what went before says nothing of its pace."""
    return json.dumps([Mark(now, done)])


def add(text: str, now: int, done: int) -> str:
    """The marks with one more. All but the newest are 2 s apart; about two minutes of them stay."""
    marks = list(decode(text))
    if len(marks) > 1 and marks[-1].time - marks[-2].time < _APART:
        marks.pop()
    return json.dumps([*marks, Mark(now, done)][-_KEPT:], separators=(",", ":"))


def last(text: str) -> datetime | None:
    """When a sample was last done, or the run began to work or went on; None where it never did."""
    marks = decode(text)
    return datetime.fromtimestamp(marks[-1].time / 1e6, UTC) if marks else None


def rate(text: str, now: int, seconds: float) -> float | None:
    """Samples done a second over the last so many seconds before ``now``.

    Returns:
        None where nothing was done since the marks began.
    """
    marks = decode(text)
    if not marks:
        return None
    begun = [mark for mark in marks if now - mark.time >= seconds * 1e6]
    first = begun[-1] if begun else marks[0]
    done = marks[-1].done - first.done
    return done / ((now - first.time) / 1e6) if done > 0 and now > first.time else None
