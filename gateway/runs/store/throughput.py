"""The throughput of a run, from a few marks of the samples done over time, stored beside its counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

_MIN_INTERVAL = 2_000_000
_MAX_MARKS = 64


class Mark(NamedTuple):
    """The number of samples done at a time."""

    time: int
    """Microseconds since 1970."""
    done: int


def decode(text: str) -> Sequence[Mark]:
    """The marks, the oldest first."""
    return [Mark(*pair) for pair in json.loads(text)]


def start(now: int, done: int) -> str:
    """The marks of a run that starts or resumes: its earlier throughput is irrelevant."""
    return json.dumps([Mark(now, done)])


def add(text: str, now: int, done: int) -> str:
    """The marks with a new one. All but the newest are 2 s apart; about two minutes of them are kept."""
    marks = list(decode(text))
    if len(marks) > 1 and marks[-1].time - marks[-2].time < _MIN_INTERVAL:
        marks.pop()
    return json.dumps([*marks, Mark(now, done)][-_MAX_MARKS:], separators=(",", ":"))


def last_advance(text: str) -> datetime | None:
    """When a sample was last done, or the run was started or resumed; None before its start."""
    marks = decode(text)
    return datetime.fromtimestamp(marks[-1].time / 1e6, UTC) if marks else None


def rate(text: str, now: int, seconds: float) -> float | None:
    """Samples per second over the ``seconds`` before ``now``; None if none was done since the first mark."""
    marks = decode(text)
    if not marks:
        return None
    before = [mark for mark in marks if now - mark.time >= seconds * 1e6]
    first = before[-1] if before else marks[0]
    done = marks[-1].done - first.done
    return done / ((now - first.time) / 1e6) if done > 0 and now > first.time else None
