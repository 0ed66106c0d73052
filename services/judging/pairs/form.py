"""The answer form of votes: a reason first, the vote last, for each role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dramaturg.judge.abstentions import Abstention
from dramaturg.judge.answers import UNPARSABLE, UnclearAnswerError
from dramaturg.judge.shapes import Choice, Record, Text
from dramaturg.judge.short_answers import option_of
from services.judging.pairs.spans import REASON, VOTE, member_of

FIRST_SHOWN, SECOND_SHOWN, NEITHER = "1", "2", "tie"
"""The votes: the text shown first, the text shown second, or neither."""

_REASON_SHAPE = Text("your comparison of the two texts, in one to three sentences", optional=True)
_ROLE_REASON_SHAPE = Text("what this role says of the two texts, in one or two sentences", optional=True)
_VOTE_HINT = f"the better text: {FIRST_SHOWN} or {SECOND_SHOWN}, or {NEITHER} where neither is"
_FORCED_HINT = f"the better text: {FIRST_SHOWN} or {SECOND_SHOWN}"
_CHOICES = (FIRST_SHOWN, SECOND_SHOWN, NEITHER)


def _vote_shape(*, ties: bool, accepts_any: bool = False) -> Choice:
    if ties:
        return Choice(_CHOICES, _VOTE_HINT, accepts_any)
    return Choice(_CHOICES[:2], _FORCED_HINT, accepts_any)


@dataclass(frozen=True)
class Vote:
    """The vote of one role on the texts in the order shown."""

    choice: str
    """One of the three votes."""
    reason: str
    """The reason, as written."""


Reading = Vote | Abstention
"""The result of one role: a vote, or the abstention."""


class _VotesRecord(Record):
    """The votes of roles, each a member. The sketch is the same for every number of roles."""

    def sketch(self, indent: str = "") -> str:
        inner = indent + "  "
        name = member_of(1)
        shape = self.members[name]
        entry = shape.inline() if isinstance(shape, Record) else shape.sketch(inner)
        lines = [f'"{name}": {entry},', "(the same for every role, by its number)"]
        return "{\n" + "\n".join(inner + line for line in lines) + f"\n{indent}}}"


@dataclass(frozen=True)
class BatchForm:
    """The form of the votes of several roles in one answer: one member a role, by its number.

    A list of votes lets a model leave roles out, or go on with a role again and again.
    """

    role_count: int
    """The number of roles. The answer refers to them by number, from 1."""
    ties: bool = True
    """Whether a vote may be a tie."""

    @property
    def name(self) -> str:
        return "votes"

    @property
    def shape(self) -> Record:
        """A reason and a vote for each role."""
        return _votes_shape(self.role_count, self.ties)

    def parse(self, value: Any) -> list[Reading]:
        """Returns one vote or abstention for each role, in order.

        Raises:
            UnclearAnswerError: The answer is not an object.
        """
        if not isinstance(value, Mapping):
            raise UnclearAnswerError("the answer is no JSON object")
        entries = [value.get(member_of(number)) for number in range(1, self.role_count + 1)]
        return [
            _read(entry, ties=self.ties)
            if isinstance(entry, Mapping)
            else Abstention(UNPARSABLE, "The answer leaves this role out.")
            for entry in entries
        ]


# Cached: schemas and instructions are cached by the shape.
@lru_cache(maxsize=64)
def _votes_shape(role_count: int, ties: bool) -> Record:
    vote = _vote_shape(ties=ties, accepts_any=True)
    entry = Record({REASON: _ROLE_REASON_SHAPE, VOTE: vote}, optional=True)
    return _VotesRecord({member_of(number): entry for number in range(1, role_count + 1)})


@dataclass(frozen=True)
class SingleForm:
    """The form of the vote of one judge without a role."""

    ties: bool = True
    """Whether the vote may be a tie."""

    @property
    def name(self) -> str:
        return "vote"

    @property
    def shape(self) -> Record:
        """A reason and a vote."""
        return Record({REASON: _REASON_SHAPE, VOTE: _vote_shape(ties=self.ties)})

    def parse(self, value: Any) -> list[Reading]:
        """Returns one vote or abstention.

        Raises:
            UnclearAnswerError: The answer is not an object.
        """
        if not isinstance(value, Mapping):
            raise UnclearAnswerError("the answer is no JSON object")
        return [_read(value, ties=self.ties)]


def read_vote(written: str) -> str | None:
    """Returns the vote that a text states, or None where it is unclear."""
    return option_of(written, _CHOICES)


def _read(entry: Mapping[str, Any], *, ties: bool) -> Reading:
    reason, written = entry.get(REASON), entry.get(VOTE)
    choice = read_vote(str(written)) if isinstance(written, str | int) else None
    if choice is None:
        return Abstention(UNPARSABLE, "The answer gives this role no clear vote.")
    if choice == NEITHER and not ties:
        return Abstention(UNPARSABLE, "The answer is a tie, although one of the texts had to be chosen.")
    return Vote(choice, reason if isinstance(reason, str) else "")
