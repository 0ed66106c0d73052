"""Reads a digraph in the DOT language (Gansner, Koutsofios, North and Vo, 1993) as models write it.

Of the attributes only ``label`` and ``minutes`` belong to a script graph; the others are about drawing and
are left out unlisted. As in Graphviz, an event without a label has its name for a label. The graph's own
label is the scenario.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import pairwise, product

from dramaturg.graphs.parsing.builder import Builder, RepairKind
from dramaturg.graphs.parsing.graph import TooLargeError
from dramaturg.graphs.parsing.tokens import Kind, Token, tokens

MAX_NESTING = 64
"""The deepest nesting of subgraphs."""

HEAD = re.compile(
    r'\b(?:strict\s{1,20})?(?:di)?graph\b\s{0,20}(?:"[^"\n]{0,200}"|[\w.]{1,200})?\s{0,20}\{', re.IGNORECASE
)
"""How a graph begins."""


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
