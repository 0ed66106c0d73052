"""Parsing of graphs in the three dialects: steps, DOT, JSON.

The steps dialect, "step0: find the recipe; step1: mix; step0 -> step1", is the one of proScript's models
(Figure 6). One pass finds heads: "step3:" starts an event, "step3 ->" or "3 ->" an edge or a chain of edges.
An event's text ends at its semicolon, at the end of its line if there is none, and at the next head in any
case. Text in between is dropped and listed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import IntEnum

from dramaturg.graphs.records import RecordError, read_record
from services.graph.model import ScriptGraph
from services.graph.parser.builder import Builder, Repair, RepairKind
from services.graph.parser.dot import HEAD, parse_dot


class Dialect(IntEnum):
    """The dialect of a text, with the numbers of the contract's ``GraphDialect``."""

    STEPS = 1
    DOT = 2
    JSON = 3


@dataclass(frozen=True)
class Parsed:
    """The result of parsing.

    Attributes:
        graph: The graph; ``None`` if the text has neither an event nor an edge.
        dialect: The dialect used.
        repairs: The repairs by position; at most ``builder.MAX_REPAIRS``.
        repair_count: The total number of repairs.
    """

    graph: ScriptGraph | None
    dialect: Dialect
    repairs: list[Repair]
    repair_count: int


def parse(text: str, dialect: Dialect | None = None) -> Parsed:
    """Parses a graph, in time linear in the text.

    Args:
        text: Any text.
        dialect: The dialect. ``None``: DOT if a graph starts anywhere (and no step has the form "step0: mix",
            which models also write inside the braces of a graph), JSON if an object or array is a graph,
            otherwise steps.

    Raises:
        TooLargeError: The graph exceeds a limit of ``builder``.
    """
    builder = Builder()
    if dialect is Dialect.DOT or (dialect is None and HEAD.search(text) and not DESCRIPTION.search(text)):
        dialect, found = Dialect.DOT, parse_dot(text, builder)
    elif dialect is Dialect.JSON or (dialect is None and parse_json(text, builder)):
        found = parse_json(text, builder) if dialect is Dialect.JSON else True
        dialect = Dialect.JSON
    else:
        dialect, found = Dialect.STEPS, True
        parse_steps(text, builder)
    if not found:
        builder.drop(text, 0)
    builder.finish()
    graph = builder.graph if len(builder.graph) else None
    return Parsed(graph, dialect, builder.repairs, builder.repair_count)


_ARROW = r"(?:-{1,3}>|={1,2}>|[→⟶⇒➔➜])"
_STEP = r"step[ \t_]{0,3}"
_HEAD = re.compile(
    rf"(?<!\w){_STEP}(?P<event>\d{{1,9}})[ \t]{{0,20}}:"
    rf"|(?<!\w)(?:{_STEP})?(?P<source>\d{{1,9}})[ \t]{{0,20}}{_ARROW}",
    re.IGNORECASE,
)
DESCRIPTION = re.compile(rf"(?<!\w){_STEP}\d{{1,9}}[ \t]{{0,20}}:\s", re.IGNORECASE)
"""A step with text. In DOT a colon starts a port, without white space."""
_TARGET = re.compile(rf"\s{{0,20}}(?:{_STEP})?(\d{{1,9}})(?!\w)", re.IGNORECASE)
_NEXT_ARROW = re.compile(rf"[ \t]{{0,20}}{_ARROW}")
_INDENT = re.compile(r"\s{0,20}")
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_SEPARATOR = re.compile(r"[;,\n]")


def parse_steps(text: str, builder: Builder) -> None:
    """Reads all events and edges of a text. The id of "step3" is "3", of "step03" too."""
    at = 0
    separated = True
    head = _HEAD.search(text)
    while head is not None:
        gap = text[at : head.start()]
        builder.drop(gap, at)
        if not separated and not _SEPARATOR.search(gap):
            builder.note(RepairKind.SEPARATOR_ASSUMED, head[0], head.start())
        if head["event"] is not None:
            following = _HEAD.search(text, head.end())
            at, separated = _read_event(text, head, following.start() if following else len(text), builder)
            head = following
        else:
            at, separated = _read_edges(text, head, builder), False
            head = _HEAD.search(text, at)
    builder.drop(text[at:], at)


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
    builder.event(_event_id(head["event"]), builder.clean(text[start:end], start), head.start())
    return end, end < limit or limit == len(text)


def _read_edges(text: str, head: re.Match[str], builder: Builder) -> int:
    """Reads a chain of edges; returns where it ends."""
    source, at = _event_id(head["source"]), head.end()
    while True:
        target = _TARGET.match(text, at)
        if target is None:
            builder.note(RepairKind.EDGE_INCOMPLETE, text[head.start() : at], head.start())
            return at
        builder.reserve(1)
        builder.edge(source, _event_id(target[1]), head.start())
        source, at = _event_id(target[1]), target.end()
        arrow = _NEXT_ARROW.match(text, at)
        if arrow is None:
            return at
        at = arrow.end()


def _event_id(digits: str) -> str:
    return str(int(digits))


def parse_json(text: str, builder: Builder) -> bool:
    """Reads the first JSON object or array of a text, if it is a graph with events or edges.

    Returns:
        Whether it is. Where not, ``builder`` is as it was.
    """
    starts = sorted(position for bracket in "{[" if (position := text.find(bracket)) >= 0)
    for start in starts:
        try:
            value, end = json.JSONDecoder().raw_decode(text, start)
            record = read_record(value)
        except (RecordError, RecursionError, ValueError):
            continue
        if not record.events and not record.edges:
            continue
        builder.drop(text[:start], 0)
        builder.graph.graph["scenario"] = record.scenario
        for event, event_text in record.events.items():
            builder.event(event, builder.clean(event_text, start), start, record.minutes.get(event))
        builder.reserve(len(record.edges))
        for source, target in record.edges:
            builder.edge(source, target, start)
        for unread in record.unread:
            builder.note(RepairKind.TEXT_DROPPED, unread, start)
        if record.named_root is not None:
            builder.note(RepairKind.ROOT_NAMED, record.events[record.named_root], start)
        builder.drop(text[end:], end)
        return True
    return False
