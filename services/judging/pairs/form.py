"""The answer form of votes, and the confidence of each vote (DRPE, equation 3).

The confidence is that of the tokens of a ballot's reason and vote. Parsed answers may be repaired and
reordered, but tokens belong to the raw text: ballots are found there, as objects with the strings "reason"
and "vote" at any depth, each named by its member. Valid JSON is read, and the text around it ignored.
Repaired ballots are not found, so that no confidence derives from the wrong tokens.

Providers return tokens without positions, and tokens and text may differ: the list may contain tokens of
hidden reasoning or an end mark, and a character split into several tokens appears in each as a replacement
character or as escaped bytes. ``locate`` finds the positions.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from dramaturg.api.generation.v1.generation_service_pb2 import Completion, TokenLogprob
from dramaturg.judge.abstentions import Abstention
from dramaturg.judge.answers import UNPARSABLE, UnclearAnswerError
from dramaturg.judge.shapes import Choice, Record, Text
from dramaturg.judge.short_answers import option_of

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


_SPLIT_CHARACTER = re.compile(r"\ufffd|\\x[0-9a-fA-F]{2}")
_SPLIT_CHARACTERS = re.compile(rf"((?:{_SPLIT_CHARACTER.pattern})+)")


def confidences(completion: Completion, readings: Sequence[Reading], *, numbered: bool) -> list[float | None]:
    """Returns the confidence of each vote, from the tokens of the role's reason and vote.

    A vote has a confidence if the raw answer contains its entry literally and the provider returned the
    tokens of the answer. Of equal entries the first one counts.

    Args:
        completion: The completion.
        readings: The parsed votes or abstentions, in the order of the roles.
        numbered: Whether each entry is a member with the role's number.

    Returns:
        Confidences in (0, 1]; None without vote or confidence.
    """
    places = locate(completion.logprobs, completion.text) if completion.logprobs else None
    if places is None:
        return [None] * len(readings)
    tokens = Tokens(completion.logprobs, places)
    written: dict[tuple[str, str, str | None], tuple[Span, Span]] = {}
    for ballot in written_ballots(completion.text):
        written.setdefault((ballot.member, ballot.reason, read_vote(ballot.vote)), ballot.spans)
    return [
        tokens.confidence(
            written.get((member_of(number) if numbered else "", reading.reason, reading.choice), ())
        )
        if isinstance(reading, Vote)
        else None
        for number, reading in enumerate(readings, start=1)
    ]


class Tokens:
    """The tokens of an answer with their positions.

    Args:
        tokens: The tokens with their log-probabilities.
        places: The span of each token, from ``locate``.
    """

    def __init__(self, tokens: Sequence[TokenLogprob], places: Sequence[Span]) -> None:
        self._logprobs = [token.logprob for token in tokens]
        self._starts = [place.start for place in places]
        self._ends = [place.end for place in places]

    def confidence(self, spans: Iterable[Span]) -> float | None:
        """Equation 3: the exponential of the mean log-probability of the tokens in ``spans``.

        A token counts once and as a whole if at least one of its characters is in a span, as its probability
        cannot be divided. The last token of a reason therefore counts even if it contains the closing
        quotation mark.

        Returns:
            A number in (0, 1], or None where there is no such token or one has no finite log-probability.
        """
        counted = {
            index
            for start, end in spans
            for index in range(bisect_right(self._ends, start), bisect_left(self._starts, end))
            if self._starts[index] < self._ends[index]
        }
        mean = math.fsum(self._logprobs[index] for index in counted) / max(1, len(counted))
        if not counted or not math.isfinite(mean):
            return None
        return math.exp(min(0.0, mean)) or None


def locate(tokens: Sequence[TokenLogprob], text: str) -> list[Span] | None:
    """Returns the span of each token in ``text``. Tokens before and after it have empty spans.

    Returns:
        A span for each token, in order, or None where tokens and text do not match.
    """
    joined = "".join(token.token for token in tokens)
    # From the end; str.rfind takes quadratic time on some texts.
    after = joined[::-1].find(text[::-1])
    if after >= 0 and text:
        begin = len(joined) - after - len(text)
        return _consecutive(tokens, begin, len(text))
    return _around_split_characters(tokens, text)


def _consecutive(tokens: Sequence[TokenLogprob], begin: int, length: int) -> list[Span]:
    spans: list[Span] = []
    position = -begin
    for token in tokens:
        end = position + len(token.token)
        spans.append(Span(min(max(position, 0), length), min(max(end, 0), length)))
        position = end
    return spans


def _around_split_characters(tokens: Sequence[TokenLogprob], text: str) -> list[Span] | None:
    """Places readable tokens. The text between them belongs to split characters."""
    inside = _without_end_marks(tokens, text)
    pieces = [piece for index, token in enumerate(tokens[:inside]) for piece in _pieces(index, token.token)]
    covered: dict[int, list[int]] = {}
    position = 0
    waiting: list[_Piece] = []
    for split, group in groupby(pieces, lambda piece: piece.split):
        if split:
            waiting = list(group)
            continue
        run = list(group)
        found = _find("".join(piece.text for piece in run), text, position, waiting)
        if found is None:
            return None
        for piece in waiting:
            covered.setdefault(piece.token, []).extend((position, found))
        position, waiting = found, []
        for piece in run:
            covered.setdefault(piece.token, []).extend((position, position + piece.length))
            position += piece.length
    for piece in waiting:
        covered.setdefault(piece.token, []).extend((position, len(text)))
    if position < len(text) and not waiting:
        return None
    nowhere = [len(text)]
    return [Span(min(place), max(place)) for place in (covered.get(i, nowhere) for i in range(len(tokens)))]


def _find(readable: str, text: str, position: int, waiting: Sequence[_Piece]) -> int | None:
    """Returns the position of a readable run after any split characters, or None."""
    pieces = sum(piece.length for piece in waiting)
    # A character is split into at least two pieces, and no ASCII character is ever split.
    room = max(1, pieces // 2) if pieces else 0
    found = text.find(readable, position + min(1, room), position + room + len(readable))
    return None if found < 0 or any(map(str.isascii, text[position:found])) else found


class _Piece(NamedTuple):
    """A part of a token: readable, or a part of split characters."""

    token: int
    """The index of its token."""
    text: str
    split: bool

    @property
    def length(self) -> int:
        return len(_SPLIT_CHARACTER.findall(self.text)) if self.split else len(self.text)


def _pieces(token: int, text: str) -> Iterator[_Piece]:
    for place, part in enumerate(_SPLIT_CHARACTERS.split(text)):
        if part:
            yield _Piece(token, part, split=place % 2 == 1)


def _without_end_marks(tokens: Sequence[TokenLogprob], text: str) -> int:
    """Returns the number of tokens without trailing tokens that the text lacks."""
    count = len(tokens)
    while count:
        last = tokens[count - 1].token
        if text.endswith(last) or _SPLIT_CHARACTER.search(last):
            break
        count -= 1
    return count
