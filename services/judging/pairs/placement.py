"""Positions of the tokens of an answer in its text.

Providers return tokens without positions, and tokens and text may differ: the list may contain tokens of
hidden reasoning or an end mark, and a character split into several tokens appears in each as a replacement
character or as escaped bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from dramaturg.api.generation.v1.generation_service_pb2 import TokenLogprob
from services.judging.pairs.spans import Span

_SPLIT_CHARACTER = re.compile(r"\ufffd|\\x[0-9a-fA-F]{2}")
_SPLIT_CHARACTERS = re.compile(rf"((?:{_SPLIT_CHARACTER.pattern})+)")


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
