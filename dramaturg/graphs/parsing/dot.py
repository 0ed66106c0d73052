"""Reads a digraph in the DOT language (Gansner, Koutsofios, North and Vo, 1993) as models write it.

Of the attributes only ``label`` and ``minutes`` belong to a script graph; the others are about drawing and
are left out unlisted. As in Graphviz, an event without a label has its name for a label. The graph's own
label is the scenario.

Reading takes time linear in the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from html import unescape
from itertools import pairwise, product

from dramaturg.graphs.parsing.builder import Builder, RepairKind, TooLargeError

MAX_NESTING = 64
"""The deepest nesting of subgraphs."""

HEAD = re.compile(
    r'\b(?:strict\s{1,20})?(?:di)?graph\b\s{0,20}(?:"[^"\n]{0,200}"|[\w.]{1,200})?\s{0,20}\{', re.IGNORECASE
)
"""How a graph begins."""


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


def parse_dot(text: str, builder: Builder) -> bool:
    """Reads the last graph of a text; returns whether there is one."""
    head = _last_head(text)
    if head is None:
        return False
    builder.drop(text[: head.start()], 0)
    _Reader(text, head.end(), builder).read()
    return True


def _last_head(text: str) -> re.Match[str] | None:
    """The head of the last graph that is not within quotation marks on its line."""
    last = None
    for head in HEAD.finditer(text):
        line_start = text.rfind("\n", 0, head.start()) + 1
        is_quoted = text.count('"', line_start, head.start()) % 2 == 1
        if last is None or not is_quoted:
            last = head
    return last


@dataclass
class _Event:
    """The attributes of an event while parsing."""

    position: int
    label: str | None = None
    minutes: float | None = None


@dataclass
class _Scope:
    """A graph or subgraph: the default label of its events, and the events named in it."""

    label: str | None = None
    events: dict[str, None] = field(default_factory=dict)


class _Reader:
    def __init__(self, text: str, start: int, builder: Builder) -> None:
        self._text = text
        self._builder = builder
        self._tokens = tokens(text, start, builder)
        self._end = start
        self._next = next(self._tokens, None)
        self._events: dict[str, _Event] = {}
        self._edges: list[tuple[str, str, int]] = []

    def read(self) -> None:
        self._statements(_Scope(), depth=0)
        if self._next is None:
            self._builder.note(RepairKind.CLOSED, "}", len(self._text))
        else:
            self._builder.drop(self._text[self._next.end :], self._next.end)
        for event, known in self._events.items():
            label = event if known.label is None else known.label.replace("\\N", event)
            self._builder.event(
                event, self._builder.clean(label, known.position), known.position, known.minutes
            )
        for source, target, position in self._edges:
            self._builder.edge(source, target, position)

    def _take(self) -> Token:
        token = self._next
        assert token is not None
        self._end = token.end
        self._next = next(self._tokens, None)
        return token

    def _statements(self, scope: _Scope, depth: int) -> None:
        """Parses statements up to the closing brace, exclusive."""
        if depth > MAX_NESTING:
            raise TooLargeError("nested subgraphs", limit=MAX_NESTING, actual=depth)
        while self._next is not None and not self._next.is_mark("}"):
            if self._next.is_mark(";,"):
                self._take()
            elif self._next.begins_operand:
                self._statement(scope, depth)
            else:
                self._skip()

    def _statement(self, scope: _Scope, depth: int) -> None:
        first = self._next
        assert first is not None
        if first.is_word("graph", "node", "edge"):
            self._take()
            if self._next is not None and self._next.is_mark("["):
                attributes = self._attributes()
                if first.is_word("node"):
                    scope.label = attributes.get("label", scope.label)
                elif first.is_word("graph") and depth == 0:
                    self._name_scenario(attributes)
                return
            self._builder.note(RepairKind.TEXT_DROPPED, first.text, first.start)
            return
        operands, directed = [self._operand(scope, depth)], [True]
        if self._next is not None and self._next.is_mark("=") and first.kind is Kind.NAME:
            self._take()
            value = self._take().text if self._next is not None and self._next.kind is Kind.NAME else ""
            if depth == 0:
                self._name_scenario({first.text.lower(): value})
            return
        while self._next is not None and self._next.is_edge:
            operator = self._take()
            if self._next is None or not self._next.begins_operand:
                self._builder.note(
                    RepairKind.EDGE_INCOMPLETE, self._text[first.start : operator.end], first.start
                )
                break
            directed.append(operator.kind is Kind.ARROW)
            operands.append(self._operand(scope, depth))
        attributes = self._attributes() if self._next is not None and self._next.is_mark("[") else {}
        for operand in operands:
            for event in operand:
                self._mention(event, first.start, scope)
        if len(operands) == 1 and not first.is_mark("{") and not first.is_word("subgraph"):
            self._describe(operands[0][0], attributes, first.start)
        for is_directed, (before, after) in zip(directed[1:], pairwise(operands), strict=True):
            self._join(before, after, first.start, is_directed=is_directed)

    def _operand(self, scope: _Scope, depth: int) -> list[str]:
        """An event, or the events of a subgraph."""
        assert self._next is not None
        if self._next.is_word("subgraph"):
            self._take()
            if self._next is not None and self._next.kind is Kind.NAME:
                self._take()
            if self._next is None or not self._next.is_mark("{"):
                return []
        if self._next.is_mark("{"):
            self._take()
            inner = _Scope(scope.label)
            self._statements(inner, depth + 1)
            if self._next is not None:
                self._take()
            return list(inner.events)
        name = self._name()
        while self._next is not None and self._next.is_mark(":"):  # a port and a compass point
            self._take()
            if self._next is not None and self._next.kind is Kind.NAME:
                self._take()
        return [name]

    def _name(self) -> str:
        """A name; quoted strings joined by "+" are one."""
        token = self._take()
        name = token.text
        while token.quoted and self._next is not None and self._next.is_mark("+"):
            self._take()
            if self._next is None or not self._next.quoted:
                break
            token = self._take()
            name += token.text
        return name

    def _attributes(self) -> dict[str, str]:
        """The attributes of one or more lists in brackets."""
        found: dict[str, str] = {}
        while self._next is not None and self._next.is_mark("["):
            self._take()
            while self._next is not None and not self._next.is_mark("]"):
                if self._next.is_mark("}"):
                    self._builder.note(RepairKind.CLOSED, "]", self._next.start)
                    return found
                if self._next.kind is not Kind.NAME:
                    self._take()
                    continue
                key = self._name().lower()
                if self._next is not None and self._next.is_mark("="):
                    self._take()
                    if self._next is not None and self._next.kind is Kind.NAME:
                        found[key] = self._name()
            if self._next is not None:
                self._take()
        return found

    def _mention(self, event: str, position: int, scope: _Scope) -> None:
        scope.events[event] = None
        if event not in self._events:
            self._events[event] = _Event(position, scope.label)

    def _describe(self, event: str, attributes: dict[str, str], position: int) -> None:
        known = self._events[event]
        known.label = attributes.get("label", known.label)
        if "minutes" in attributes:
            minutes = _number(attributes["minutes"])
            if minutes is None:
                self._builder.note(RepairKind.TEXT_DROPPED, f"minutes={attributes['minutes']}", position)
            else:
                known.minutes = minutes

    def _join(self, before: list[str], after: list[str], position: int, *, is_directed: bool) -> None:
        if is_directed:
            self._builder.reserve(len(before) * len(after))
            self._edges += [(source, target, position) for source, target in product(before, after)]
        elif before and after:
            shown = f"{before[0]} -- {after[0]}"
            self._builder.note(RepairKind.UNDIRECTED_EDGE_DROPPED, shown, position)

    def _name_scenario(self, attributes: dict[str, str]) -> None:
        if "label" in attributes:
            self._builder.graph.scenario = attributes["label"]

    def _skip(self) -> None:
        """Leaves out what makes no statement, up to the next place where one can begin."""
        first = self._take()
        while self._next is not None and not self._next.is_mark(";{}"):
            if "\n" in self._text[self._end : self._next.start]:
                break
            self._take()
        self._builder.note(RepairKind.TEXT_DROPPED, self._text[first.start : self._end], first.start)


def _number(text: str) -> float | None:
    """A number in [0, 1e9], else ``None``."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= 1e9 else None
