"""Graphs that are read from texts: the graph under construction, its repairs, numbered steps.

Reads numbered steps and their edges: "step0: find the recipe; step1: mix; step0 -> step1". This is the
dialect of proScript's models (Figure 6). One pass finds heads: "step3:" starts an event, "step3 ->" or "3 ->"
an edge or a chain of edges. "step3 -> step4, step5" and "step1, step2 -> step3" are two edges each. Events
may also be written as "**step3**:", as "step3." or "step3)" at the start of a line, and, where there are
edges, as "3." at the start of a line. An event's text ends at its semicolon, at the end of its line if there
is none, and at the next head in any case. Text in between is dropped and listed.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from enum import IntEnum


class TooLargeError(ValueError):
    """The input exceeds a limit.

    Attributes:
        what: The limited quantity, e.g. "events".
        limit: The maximum.
        actual: The actual number, or a lower bound if counting stopped early.
    """

    def __init__(self, what: str, *, limit: int, actual: int) -> None:
        super().__init__(f"{actual} {what}; at most {limit} are supported")
        self.what = what
        self.limit = limit
        self.actual = actual


@dataclass
class ReadEvent:
    """An event of a text."""

    text: str = ""
    """Its text, possibly empty."""
    minutes: float | None = None
    """Its typical duration. None: it is not known."""
    declared: bool = True
    """Whether the text declares it. False: only edges name it."""


@dataclass
class ReadGraph:
    """Events by id and edges, in the order of the text."""

    scenario: str = ""
    events: dict[str, ReadEvent] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)

    def has_declared(self, event: str) -> bool:
        """Whether the text declares an event of this id."""
        return event in self.events and self.events[event].declared


def normalise(text: str) -> str:
    """NFKC, case folded, white space collapsed, final full stops and semicolons left out."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split()).rstrip(".; ")


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


ARROW = r"(?:-{1,3}(?:>|&gt;)|={1,2}(?:>|&gt;)|-\.{1,3}->|[→⟶⇒➔➜])"
"""The pattern of an arrow."""
_STEP = r"(?:step|event|node)[ \t_]{0,3}#?"
_BOLD = r"(?:\*\*|__)?"
_NAMED = rf"(?:{_STEP}|(?-i:[ES])(?=\d))"
_LABEL = r"(?:[ \t]{0,3}\([^()\n]{1,300}\)|[ \t]{0,3}\"[^\"\n]{1,300}\"|[ \t]{0,3}\[[^\[\]\n]{1,300}\])?"
"""An event's text beside its number: "Event 1 (mix) -> Event 2 (bake)"."""


def _end(name: str) -> str:
    """The pattern of an end of an edge: "3", "step3", "Event 3", "(3)", "[3]"."""
    digits = rf"(?P<{name}>\d{{1,9}})"
    return rf"{_BOLD}[(\[]?{_BOLD}{_NAMED}?{digits}(?!\w){_BOLD}[)\]]?+{_BOLD}"


_EVENT = (
    rf"(?<!\w){_BOLD}{_NAMED}(?P<event>\d{{1,9}}){_BOLD}[ \t]{{0,20}}:{_BOLD}"
    rf"|^[ \t]{{0,20}}(?:[-*•][ \t]{{1,4}})?{_BOLD}{_NAMED}(?P<listed>\d{{1,9}}){_BOLD}"
    rf"[ \t]{{0,4}}[.)–—-]{_BOLD}(?=[ \t])"
)
_NUMBERED = (
    rf"|^[ \t]{{0,20}}(?:[-*•][ \t]{{1,4}})?{_BOLD}(?:[(\[](?=\d{{1,4}}[)\]]))?(?P<number>\d{{1,4}})[.):\]]"
    rf"{_BOLD}[ \t]{{1,20}}"
    rf"(?!{_BOLD}[(\[]?{_NAMED}?\d{{1,9}}{_BOLD}[)\]]?{_LABEL}[ \t]{{0,20}}(?:{ARROW}|:))(?=\S)"
    rf"(?!{ARROW})"
)
_EDGE = rf"(?<!\w){_end('source')}{_LABEL}[ \t]{{0,20}}{ARROW}"
_FLAGS = re.IGNORECASE | re.MULTILINE
_HEAD = re.compile(f"{_EVENT}|{_EDGE}", _FLAGS)
_HEAD_OR_NUMBER = re.compile(f"{_EVENT}{_NUMBERED}|{_EDGE}", _FLAGS)
_EDGE_HEAD = re.compile(_EDGE, _FLAGS)
EVENT_HEAD = re.compile(_EVENT, _FLAGS)
"""The head of an event, which names its number "event" or "listed"."""
DESCRIPTION = re.compile(rf"(?<!\w){_STEP}\d{{1,9}}[ \t]{{0,20}}:\s", re.IGNORECASE)
"""A step with text. In DOT a colon starts a port, without white space."""
_TARGET = re.compile(rf"\s{{0,20}}{_end('target')}{_LABEL}", re.IGNORECASE)
_NEXT_ARROW = re.compile(rf"[ \t]{{0,20}}{ARROW}")
_ALSO = re.compile(
    rf"[ \t]{{0,20}}(?:,|&|and\b)[ \t]{{0,20}}(?:and[ \t])?{_end('target')}{_LABEL}"
    r"(?=[ \t]{0,20}(?:[,;)\]\n&]|\.(?!\d)|and\b|\Z))",
    re.IGNORECASE,
)
_STEP_MARKS = re.compile(
    r"(?:[\s,.>|\"'`({\[\]})*•&-]|\d{1,4}[.)](?=\s)|(?:and|then|also)\b)*", re.IGNORECASE
)
_DENIAL = re.compile(
    r"[\W_]*(?:(?:the|these|those|edges?|ones|that|are|is|were|was|i)\s+){0,4}"
    r"(?:not|no|never|do(?:es)?\s+not|don't|doesn't|left\s+out|leave\s+out|omit(?:ted)?|removed|excluded|dropped"
    r"|redundant|shortcuts?|unnecessary|unneeded|superfluous|implied|rejected|wrong|incorrect|invalid|forbidden)\b",
    re.IGNORECASE,
)
"""How a label, a heading or a remark begins that denies an edge. A scenario may be "remove a stain"."""
COMMENT = re.compile(r"[\s\-*•]*(?://|#|%|/\*)")
"""How a line begins that is a comment."""
_EXPLAINED = re.compile(
    r"[ \t]*(?:\Z|[\n;,.:)\]|}&*`\"'(–—#/{\[-]|(?:because|since|as|so|and|then|for|to|before|when|while)\b)",
    re.IGNORECASE,
)
"""What may follow an edge in its statement: nothing, a mark, or a reason. A verb makes it prose."""
_SOURCES = re.compile(
    rf"(?:\A|[;.:\n])[\s*•-]{{0,20}}((?:(?:{_NAMED})\d{{1,9}}[ \t]{{0,4}}(?:,|&|and\b)"
    r"[ \t]{0,4}(?:and[ \t])?){1,20})\Z",
    re.IGNORECASE,
)
_SPACES = re.compile(r"[ \t]{0,20}")
_INDENT = re.compile(r"\s{0,20}")
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_SEPARATOR = re.compile(r"[;,\n]")
_DENIED_LABEL = re.compile(rf"\({_DENIAL.pattern}", re.IGNORECASE)
_LONGEST_REMARK = 80
_LONGEST_SOURCES = 400
_LONGEST_BLOCK = 2_000


def has_numbered_edges(text: str) -> bool:
    """Whether a text has an edge between numbered steps."""
    return _EDGE_HEAD.search(text) is not None


def parse_steps(text: str, builder: Builder) -> None:
    """Reads all events and edges of a text. The id of "step3" is "3", of "step03" too.

    An edge is a statement of its own: words before it, but for a label with a colon, a comment, a denial
    ("Do not add step1 -> step0", "Left out:") and a verb after it ("step1 -> step2 is not required") make
    it prose, which is dropped and listed.
    """
    # A numbered list without edges is a script, and beside "step1:" its numbers are marks of a list.
    counts_numbers = has_numbered_edges(text) and not EVENT_HEAD.search(text)
    heads = _HEAD_OR_NUMBER if counts_numbers else _HEAD
    at = 0
    separated = True
    head = heads.search(text)
    while head is not None:
        sources = [] if head["source"] is None else _sources(text, at, head)
        gap = text[at : head.start()]
        if not sources:
            builder.drop(gap, at)
        if not separated and not _SEPARATOR.search(gap):
            builder.note(RepairKind.SEPARATOR_ASSUMED, head[0].lstrip(), head.start())
        if head["source"] is None:
            following = heads.search(text, head.end())
            at, separated = _read_event(text, head, following.start() if following else len(text), builder)
            head = following
        else:
            is_stated = bool(sources) or _introduces(text, at, head.start())
            at, separated = _read_edges(text, head, sources, builder, is_stated=is_stated), False
            head = heads.search(text, at)
    builder.drop(text[at:], at)


def _introduces(text: str, start: int, end: int) -> bool:
    """Whether the text before an edge, in its statement and in the heading above, leaves it a statement."""
    begin = max(start, text.rfind("\n", start, end) + 1, text.rfind(";", start, end) + 1)
    lead = text[begin:end]
    if COMMENT.match(lead) or _DENIAL.match(lead):
        return False
    marks = _STEP_MARKS.match(lead)
    assert marks is not None
    words = lead[marks.end() :].rstrip(" \t*_`\"'([{-")
    return (not words or words.endswith((":", "：", "="))) and not _is_below_denial(text, begin)


def _is_below_denial(text: str, begin: int) -> bool:
    """Whether the nearest heading above a line denies: "Left out:", then lines without a blank one."""
    block = text[max(0, begin - _LONGEST_BLOCK) : begin]
    blank = [*_BLANK_LINE.finditer(block)]
    lines = block[blank[-1].end() if blank else 0 :].splitlines()
    heading = next((line for line in reversed(lines) if line.rstrip(" *_").endswith(":")), "")
    return _DENIAL.match(heading) is not None


def _sources(text: str, start: int, head: re.Match[str]) -> list[str]:
    """Returns the steps listed before the source of an edge: "step0, step1 -> step2"."""
    gap = text[max(start, head.start() - _LONGEST_SOURCES) : head.start()]
    found = _SOURCES.search(gap)
    return [_event_id(number) for number in re.findall(r"\d+", found[1])] if found else []


def _read_event(text: str, head: re.Match[str], limit: int, builder: Builder) -> tuple[int, bool]:
    """Reads an event's text up to ``limit`` at most; returns where it ends and whether by a separator."""
    indent = _INDENT.match(text, head.end(), limit)
    assert indent is not None
    start = indent.end()
    end = text.find(";", start, limit)
    blank = _BLANK_LINE.search(text, start, limit)
    if end < 0 or (blank is not None and blank.start() < end):
        line_end = text.find("\n", start, limit)
        end = line_end if line_end >= 0 else limit
    number = head["event"] or head["listed"] or head["number"]
    builder.event(_event_id(number), builder.clean(text[start:end], start), head.start())
    return end, end < limit or limit == len(text)


def _read_edges(text: str, head: re.Match[str], more: list[str], builder: Builder, *, is_stated: bool) -> int:
    """Reads a chain of edges; returns where it ends. A chain in prose is dropped."""
    sources, at = [*more, _event_id(head["source"])], head.end()
    edges: list[tuple[str, str]] = []
    while True:
        target = _TARGET.match(text, at)
        if target is None:
            builder.note(RepairKind.EDGE_INCOMPLETE, text[head.start() : at], head.start())
            break
        targets, at = [_event_id(target["target"])], target.end()
        while also := _ALSO.match(text, at):
            targets.append(_event_id(also["target"]))
            at = also.end()
        builder.reserve(len(sources) * len(targets))
        edges += [(source, goal) for source in sources for goal in targets]
        arrow = _NEXT_ARROW.match(text, at)
        if arrow is None:
            break
        sources, at = targets, arrow.end()
    following = _EDGE_HEAD.match(text, _SPACES.match(text, at).end())  # type: ignore[union-attr]
    remark = re.split(r"[;\n]", text[at : at + _LONGEST_REMARK], maxsplit=1)[0]
    is_denied = bool(_DENIAL.match(remark) or _DENIED_LABEL.search(text, head.start(), at))
    if is_stated and (following or _EXPLAINED.match(text, at)) and not is_denied:
        for source, goal in edges:
            builder.edge(source, goal, head.start())
    elif edges:
        builder.drop(text[head.start() : at], head.start())
    return at


def _event_id(digits: str) -> str:
    return str(int(digits))
