"""Shared by all dialects: the graph under construction and the list of repairs."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import IntEnum

from dramaturg.graphs.parsing.graph import ReadEvent, ReadGraph, TooLargeError

MAX_EVENTS = 5_000
"""The maximum number of events."""
MAX_EDGES = 20_000
"""The maximum number of distinct edges."""
MAX_EDGE_MENTIONS = 200_000
"""The maximum number of stated edges, including repeated ones."""
MAX_ID_LENGTH = 200
"""The maximum length of an event id, in code points."""
MAX_TEXT_LENGTH = 20_000
"""The maximum length of an event's text, in code points."""
MAX_REPAIRS = 1_000
"""The maximum number of listed repairs; further ones are only counted."""
MAX_SHOWN = 200
"""The maximum length of the text of a repair, in code points."""

_FENCE = re.compile(r"`{3,}[A-Za-z]{0,20}")
_MARKS = re.compile(r"[\s;,.*•|`\"'\[\](){}-]*")


class RepairKind(IntEnum):
    """The kinds of repair, with the numbers of the contract's ``RepairKind``, which explains them."""

    TEXT_DROPPED = 1
    FENCE_REMOVED = 2
    SEPARATOR_ASSUMED = 3
    LINES_JOINED = 4
    EDGE_REPEATED = 5
    EVENT_REPEATED = 6
    EVENT_REDEFINED = 7
    EVENT_UNDECLARED = 8
    CLOSED = 9
    UNDIRECTED_EDGE_DROPPED = 10
    CHARACTER_REMOVED = 11
    EDGE_INCOMPLETE = 12
    ROOT_NAMED = 13


@dataclass(frozen=True)
class Repair:
    """A dropped or repaired part of the text; ``position`` counts code points from 0."""

    kind: RepairKind
    text: str
    position: int


class Builder:
    """Builds one graph and lists the repairs.

    Every method raises ``TooLargeError`` if a limit of this module is exceeded, which bounds the cost of a
    text.
    """

    def __init__(self) -> None:
        self.graph = ReadGraph()
        self.repairs: list[Repair] = []
        self.repair_count = 0
        self._mentions = 0
        self._edge_count = 0
        self._first_mention: dict[str, int] = {}

    def note(self, kind: RepairKind, text: str, position: int) -> None:
        """Lists a repair."""
        self.repair_count += 1
        if len(self.repairs) < MAX_REPAIRS:
            self.repairs.append(Repair(kind, text[:MAX_SHOWN], position))

    def drop(self, text: str, position: int) -> None:
        """Drops text. White space, separators, brackets, list and quotation marks are dropped silently."""
        for fence in _FENCE.finditer(text):
            self.note(RepairKind.FENCE_REMOVED, fence[0], position + fence.start())
        rest = _FENCE.sub(lambda fence: " " * len(fence[0]), text)
        start = _MARKS.match(rest)
        assert start is not None
        if start.end() < len(rest):
            shown = rest[start.end() : start.end() + MAX_SHOWN].rstrip()
            self.note(RepairKind.TEXT_DROPPED, shown, position + start.end())

    def clean(self, text: str, position: int) -> str:
        """A text on one line, without control characters and code fences around it."""
        if any(unicodedata.category(character) == "Cc" and not character.isspace() for character in text):
            self.note(RepairKind.CHARACTER_REMOVED, text, position)
            text = "".join(c for c in text if unicodedata.category(c) != "Cc" or c.isspace())
        stripped = text.strip().strip("`").strip()
        if "\n" in stripped:
            self.note(RepairKind.LINES_JOINED, stripped, position)
        cleaned = " ".join(stripped.split())
        if len(cleaned) > MAX_TEXT_LENGTH:
            raise TooLargeError("code points of an event's text", limit=MAX_TEXT_LENGTH, actual=len(cleaned))
        return cleaned

    def event(self, event: str, text: str, position: int, minutes: float | None = None) -> None:
        """Declares an event; the first declaration wins."""
        if self.graph.has_declared(event):
            same = self.graph.events[event].text == text
            self.note(RepairKind.EVENT_REPEATED if same else RepairKind.EVENT_REDEFINED, text, position)
            return
        self._make_room(event)
        self.graph.events[event] = ReadEvent(text, minutes)

    def mention(self, event: str) -> None:
        """Adds an event that is not declared yet."""
        self._make_room(event)
        self.graph.events[event] = ReadEvent(declared=False)

    def reserve(self, edges: int) -> None:
        """Counts edges before they are added."""
        self._mentions += edges
        if self._mentions > MAX_EDGE_MENTIONS:
            raise TooLargeError("stated edges", limit=MAX_EDGE_MENTIONS, actual=self._mentions)

    def edge(self, source: str, target: str, position: int) -> None:
        """Adds a reserved edge; existing edges stay unchanged."""
        if (source, target) in self.graph.edges:
            self.note(RepairKind.EDGE_REPEATED, f"{source} -> {target}", position)
            return
        self._edge_count += 1
        if self._edge_count > MAX_EDGES:
            raise TooLargeError("edges", limit=MAX_EDGES, actual=self._edge_count)
        for event in (source, target):
            if event not in self.graph.events:
                self.mention(event)
            self._first_mention.setdefault(event, position)
        self.graph.edges[source, target] = None

    def finish(self) -> None:
        """Lists the events named only by edges, if other events are declared."""
        declared = {event: read.declared for event, read in self.graph.events.items()}
        if any(declared.values()):
            for event in (event for event, is_declared in declared.items() if not is_declared):
                self.note(RepairKind.EVENT_UNDECLARED, event, self._first_mention[event])
        self.repairs.sort(key=lambda repair: repair.position)

    def _make_room(self, event: str) -> None:
        if len(event) > MAX_ID_LENGTH:
            raise TooLargeError("code points of an event's id", limit=MAX_ID_LENGTH, actual=len(event))
        if event not in self.graph.events and len(self.graph.events) >= MAX_EVENTS:
            raise TooLargeError("events", limit=MAX_EVENTS, actual=MAX_EVENTS + 1)
