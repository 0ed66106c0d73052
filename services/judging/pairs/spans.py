"""Positions of ballots in the raw answer of a model.

Parsed answers may be repaired and reordered, but tokens belong to the raw text. This module finds the ballots
in the raw text: objects with the strings "reason" and "vote" at any depth, each named by its member. It reads
valid JSON and ignores the text around it. Repaired ballots are not found, so that no confidence derives from
the wrong tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

REASON, VOTE = "reason", "vote"
"""The members of a ballot, in the order in which they are written."""

_MAX_DEPTH = 100
"""The deepest nesting that is read."""

_TOKEN = re.compile(
    r"""(?P<name>"(?:[^"\\]++|\\.)*+")(?P<colon>[ \t\r\n]*:)?"""
    # A pair after a backslash is no token; beginning strings within it would take quadratic time.
    r"|(?P<open>[{\[])|(?P<close>[}\]])|(?P<number>-?\d++)|\\.",
    re.DOTALL,
)


def member_of(number: int) -> str:
    """The member with the ballot of a role, by the role's number from 1."""
    return f"role_{number}"


class Span(NamedTuple):
    """A range of characters of a text."""

    start: int
    end: int


@dataclass(frozen=True)
class WrittenBallot:
    """A ballot in the raw text."""

    member: str
    """The member that it is the value of; empty where it is the outermost object or in a list."""
    reason: str
    vote: str
    spans: tuple[Span, Span]
    """The spans of the reason and the vote, without quotation marks."""


@dataclass
class _Object:
    name: str = ""
    """The member that it is the value of."""
    member: str = ""
    values: dict[str, str] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)

    def take(self, value: str, span: Span) -> None:
        if self.member:
            self.values[self.member], self.spans[self.member] = value, span
        self.member = ""

    def ballot(self) -> WrittenBallot | None:
        if REASON not in self.spans or VOTE not in self.spans:
            return None
        return WrittenBallot(
            self.name,
            self.values[REASON],
            self.values[VOTE],
            (self.spans[REASON], self.spans[VOTE]),
        )


def written_ballots(text: str) -> Iterator[WrittenBallot]:
    """Yields the ballots of a text, in the order of their ends, up to a nesting of 100 levels."""
    stack: list[_Object] = []
    for token in _TOKEN.finditer(text):
        if token["open"]:
            name = stack[-1].member if stack else ""
            if stack:
                stack[-1].member = ""
            if len(stack) == _MAX_DEPTH:
                return
            stack.append(_Object(name))
        elif token["close"]:
            closed = stack.pop() if stack else _Object()
            ballot = closed.ballot() if token["close"] == "}" else None
            if ballot is not None:
                yield ballot
        elif stack and token["colon"]:
            stack[-1].member = _string(token["name"])
        elif stack and token["number"]:
            stack[-1].take(token["number"], Span(*token.span("number")))
        elif stack and token["name"] is not None:
            start, end = token.span("name")
            stack[-1].take(_string(token["name"]), Span(start + 1, end - 1))


def _string(quoted: str) -> str:
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError:
        return quoted[1:-1]
