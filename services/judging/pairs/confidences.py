"""The confidence of each vote of an answer (DRPE, equation 3), from the tokens of its reason and vote.

Providers return tokens without positions, and tokens and text may differ: the list may contain tokens of
hidden reasoning or an end mark, and a character split into several tokens appears in each as a replacement
character or as escaped bytes. ``locate`` finds the positions.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from dramaturg.api.generation.v1.generation_service_pb2 import Completion, TokenLogprob
from services.judging.pairs.form import Reading, Vote, read_vote
from services.judging.pairs.spans import Span, member_of, written_ballots

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
