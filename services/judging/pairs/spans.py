"""Where in a model's raw answer each ballot stands.

What is read out of an answer is JSON that was perhaps mended and put in order; the tokens belong to the text
as it came. This module finds the ballots in that text: objects with a "reason" and a "vote" that are strings,
wherever they stand. It reads proper JSON and ignores text around it. What had to be mended it
does not find, so that no confidence is made of the wrong tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

ROLE, REASON, VOTE = "role", "reason", "vote"
"""The members of a ballot, in the order in which they are written."""

_TOKEN = re.compile(
    r"""(?P<name>"(?:[^"\\]++|\\.)*+")(?P<colon>[ \t\r\n]*:)?"""
    r"|(?P<open>[{\[])|(?P<close>[}\]])|(?P<number>-?\d+)",
    re.DOTALL,
)


class Span(NamedTuple):
    """A stretch of a text, as indices of characters."""

    start: int
    end: int


@dataclass(frozen=True)
class WrittenBallot:
    """A ballot as it stands in the text."""

    role: str
    """The role's number, as written; empty where there is none."""
    reason: str
    vote: str
    spans: tuple[Span, Span]
    """Where the reason and the vote stand, without their quotation marks."""


@dataclass
class _Object:
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
            self.values.get(ROLE, ""),
            self.values[REASON],
            self.values[VOTE],
            (self.spans[REASON], self.spans[VOTE]),
        )


def written_ballots(text: str) -> Iterator[WrittenBallot]:
    """The ballots that stand in a text, in order of their ends."""
    stack: list[_Object] = []
    for token in _TOKEN.finditer(text):
        if token["open"]:
            if stack:
                stack[-1].member = ""
            stack.append(_Object())
        elif token["close"]:
            closed = stack.pop() if stack else _Object()
            ballot = closed.ballot() if token["close"] == "}" else None
            if ballot is not None:
                yield ballot
        elif stack and token["colon"]:
            stack[-1].member = _string(token["name"])
        elif stack and token["number"]:
            stack[-1].take(token["number"], Span(*token.span("number")))
        elif stack:
            start, end = token.span("name")
            stack[-1].take(_string(token["name"]), Span(start + 1, end - 1))


def _string(quoted: str) -> str:
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError:
        return quoted[1:-1]
