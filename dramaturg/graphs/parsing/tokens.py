"""Tokenizer of DOT, in time linear in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from html import unescape

from dramaturg.graphs.parsing.builder import Builder, RepairKind


class Kind(Enum):
    """The kinds of tokens."""

    NAME = auto()
    """An identifier: a word, a number, a quoted or an HTML string, without quotes."""
    ARROW = auto()
    LINE = auto()
    """The undirected edge operator."""
    MARK = auto()
    """One of ``{ } [ ] ; , = : +``."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token; ``start`` and ``end`` are positions in the text."""

    kind: Kind
    text: str
    start: int
    end: int
    quoted: bool = False

    def is_mark(self, marks: str) -> bool:
        """Whether it is one of these marks."""
        return self.kind is Kind.MARK and self.text in marks

    @property
    def is_edge(self) -> bool:
        """Whether it joins two operands."""
        return self.kind in {Kind.ARROW, Kind.LINE}

    @property
    def begins_operand(self) -> bool:
        """Whether it starts an event or a subgraph."""
        return self.kind is Kind.NAME or self.is_mark("{")

    def is_word(self, *words: str) -> bool:
        """Whether it is one of the given keywords, ignoring case."""
        return self.kind is Kind.NAME and not self.quoted and self.text.lower() in words


_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<arrow>-{1,3}(?:>|&gt;)|→|⟶|⇒)
  | (?P<line>--)
  | (?P<mark>[{}\[\];,=:+])
  | (?P<word>[^\W\d]\w*+|-?(?:\d++(?:\.\d*+)?|\.\d++)\w*+)
    """,
    re.VERBOSE,
)
_STRING = re.compile(r'(?:[^"\\]|\\.)*+', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_LINE_ESCAPES = {"n": " ", "l": " ", "r": " ", "\n": ""}
_ANGLE = re.compile(r"[<>]")
_TAG = re.compile(r"<[^<>]*+>")


def tokens(text: str, start: int, builder: Builder) -> Iterator[Token]:
    """The tokens of ``text`` from ``start``; comments are skipped, unknown characters dropped and listed."""
    at = start
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is not None:
            at = found.end()
            if found.lastgroup != "space":
                yield Token(_KINDS[found.lastgroup or ""], found[0], found.start(), at)
        elif text[at] == '"':
            end = _string_end(text, at)
            _close(text, end, at, builder)
            yield Token(Kind.NAME, _ESCAPE.sub(_unescape, text[at + 1 : end]), at, end + 1, quoted=True)
            at = end + 1
        elif text[at] == "<":
            end = _html_end(text, at)
            _close(text, end, at, builder)
            words = unescape(_TAG.sub(" ", text[at + 1 : end]))
            yield Token(Kind.NAME, " ".join(words.split()), at, end + 1, quoted=True)
            at = end + 1
        elif (comment_end := _comment_end(text, at)) is not None:
            at = comment_end
        else:
            builder.note(
                RepairKind.CHARACTER_REMOVED if text[at] < " " else RepairKind.TEXT_DROPPED, text[at], at
            )
            at += 1


_KINDS = {"arrow": Kind.ARROW, "line": Kind.LINE, "mark": Kind.MARK, "word": Kind.NAME}


def _close(text: str, end: int, start: int, builder: Builder) -> None:
    if end >= len(text):
        builder.note(RepairKind.CLOSED, text[start:], start)


def _unescape(escape: re.Match[str]) -> str:
    character = escape[1]
    return _LINE_ESCAPES.get(character, character if character in '"\\' else escape[0])


def _string_end(text: str, start: int) -> int:
    """Where a string that opens at ``start`` closes; the end of the text where it does not."""
    content = _STRING.match(text, start + 1)
    return content.end() if content is not None else len(text)


def _html_end(text: str, start: int) -> int:
    """Where an HTML string that opens at ``start`` closes; the end of the text where it does not."""
    depth = 0
    for bracket in _ANGLE.finditer(text, start):
        depth += 1 if bracket[0] == "<" else -1
        if depth == 0:
            return bracket.start()
    return len(text)


def _comment_end(text: str, start: int) -> int | None:
    """Where a comment that opens at ``start`` ends; ``None`` where none opens there."""
    if text.startswith("/*", start):
        end = text.find("*/", start + 2)
        return len(text) if end < 0 else end + 2
    at_line_start = start == 0 or text[start - 1] == "\n"
    if text.startswith("//", start) or (text[start] == "#" and at_line_start):
        end = text.find("\n", start)
        return len(text) if end < 0 else end
    return None
