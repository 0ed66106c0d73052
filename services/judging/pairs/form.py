"""The answer form of votes: a reason first, the vote last, for each role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.judge.abstentions import Abstention
from dramaturg.judge.answers import UNPARSABLE, UnclearAnswerError
from dramaturg.judge.shapes import Choice, ListOf, Number, Record, Shape, Text
from dramaturg.judge.short_answers import option_of
from services.judging.pairs.spans import REASON, ROLE, VOTE

FIRST_SHOWN, SECOND_SHOWN, NEITHER = "1", "2", "tie"
"""The votes: the text shown first, the text shown second, or neither."""

_VOTES = "votes"
_REASON_SHAPE = Text("your comparison of the two texts, in one to three sentences", optional=True)
_VOTE_HINT = f"the better text: {FIRST_SHOWN} or {SECOND_SHOWN}, or {NEITHER} where neither is"
_FORCED_HINT = f"the better text: {FIRST_SHOWN} or {SECOND_SHOWN}"
_CHOICES = (FIRST_SHOWN, SECOND_SHOWN, NEITHER)


@dataclass(frozen=True)
class Vote:
    """The vote of one role on the texts in the order shown."""

    choice: str
    """One of the three votes."""
    reason: str
    """The reason, as written."""


Reading = Vote | Abstention
"""The result of one role: a vote, or the abstention."""


@dataclass(frozen=True)
class BatchForm:
    """The form of the votes of several roles in one answer."""

    role_count: int
    """The number of roles. The answer refers to them by number, from 1."""
    ties: bool = True
    """Whether a vote may be a tie."""

    @property
    def name(self) -> str:
        return _VOTES

    @property
    def shape(self) -> Record:
        """A list of votes."""
        members: dict[str, Shape] = {
            ROLE: Number("the role's number; each one once"),
            REASON: Text("what this role says on the two texts, in one to three sentences", optional=True),
            # A string, not an enumeration: one invalid word must not invalidate the votes of all other roles.
            VOTE: Text(_VOTE_HINT if self.ties else _FORCED_HINT),
        }
        return Record({_VOTES: ListOf(Record(members))})

    def parse(self, value: Any) -> list[Reading]:
        """Returns one vote or abstention for each role, in order. Entries of unknown roles are ignored.

        Raises:
            UnclearAnswerError: There is no list of votes.
        """
        entries = value.get(_VOTES) if isinstance(value, Mapping) else None
        if not isinstance(entries, list):
            raise UnclearAnswerError("the answer has no list of votes")
        said: dict[int, list[Reading]] = {number: [] for number in range(1, self.role_count + 1)}
        for entry in entries:
            number = entry.get(ROLE) if isinstance(entry, Mapping) else None
            if isinstance(number, int) and not isinstance(number, bool) and number in said:
                said[number].append(_read(entry, ties=self.ties))
        return [_agreed(readings) for readings in said.values()]


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
        choices = _CHOICES if self.ties else _CHOICES[:2]
        hint = _VOTE_HINT if self.ties else _FORCED_HINT
        return Record({REASON: _REASON_SHAPE, VOTE: Choice(choices, hint=hint)})

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


def _agreed(readings: Sequence[Reading]) -> Reading:
    """Returns the vote of a role, which may be given several times: the first, provided that all agree."""
    if not readings:
        return Abstention(UNPARSABLE, "The answer leaves this role out.")
    votes = [reading for reading in readings if isinstance(reading, Vote)]
    if len(votes) < len(readings):
        return next(reading for reading in readings if not isinstance(reading, Vote))
    if len({vote.choice for vote in votes}) > 1:
        return Abstention(
            verdict_pb2.ABSTAIN_REASON_CONTRADICTORY, "The answer gives this role two different votes."
        )
    return votes[0]
