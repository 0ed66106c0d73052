"""Parsing of graphs in five dialects: steps, DOT, JSON, Mermaid, and edges between texts.

Reasoning between marks is not read. Of several graphs in one text the last one counts: of several code fences
that each hold a whole graph, the last fence; of several digraphs, the last digraph. Dropped text is listed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import IntEnum

from dramaturg.graphs.parsing.builder import Builder, Repair, RepairKind
from dramaturg.graphs.parsing.dot import HEAD, parse_dot
from dramaturg.graphs.parsing.graph import ReadGraph
from dramaturg.graphs.parsing.mermaid import MERMAID_HEAD, parse_mermaid
from dramaturg.graphs.parsing.pairs import with_arrows
from dramaturg.graphs.parsing.steps import ARROW, DESCRIPTION, has_numbered_edges, parse_steps
from dramaturg.graphs.parsing.texts import parse_texts
from dramaturg.graphs.records import RecordError, read_record
from dramaturg.judge.reasoning import blanked

MAX_JSON_STARTS = 16
"""The maximum number of brackets that are tried as the start of a JSON graph."""

_FENCE = re.compile(r"^[ \t]{0,20}(`{3,}|~{3,})[^\n]{0,80}$", re.MULTILINE)
_ANY_ARROW = re.compile(ARROW)
_JSON_START = re.compile(r"[{\[]")


class Dialect(IntEnum):
    """The dialect of a text, with the numbers of the contract's ``GraphDialect``."""

    STEPS = 1
    DOT = 2
    JSON = 3
    MERMAID = 4
    TEXTS = 5


@dataclass(frozen=True)
class Parsed:
    """The result of parsing.

    Attributes:
        graph: The graph; ``None`` if the text has neither an event nor an edge.
        dialect: The dialect used.
        repairs: The repairs by position; at most ``builder.MAX_REPAIRS``.
        repair_count: The total number of repairs.
    """

    graph: ReadGraph | None
    dialect: Dialect
    repairs: list[Repair]
    repair_count: int


def parse(text: str, dialect: Dialect | None = None) -> Parsed:
    """Parses a graph, in time linear in the text.

    Args:
        text: Any text.
        dialect: The dialect. ``None``: Mermaid if a flowchart starts on a line; DOT if a graph starts
            anywhere (and no step has the form "step0: mix", which models also write inside the braces of a
            graph); JSON if an object or array is a graph; otherwise steps, and edges between texts where the
            steps have no edges.

    Raises:
        TooLargeError: The graph exceeds a limit of ``builder``.
    """
    # Every line ends with "\n". The length, and so every position, stays.
    text = text.replace("\r\n", " \n").replace("\r", "\n")
    shown = blanked(text)
    if shown.startswith("\ufeff"):
        shown = " " + shown[1:]
    start, end = _last_graph(shown, dialect)
    builder = Builder()
    if start or end < len(shown):
        builder.drop(shown[:start], 0)
        builder.drop(shown[end:], end)
    # Spaces before the graph keep positions as they are in the text.
    used = _parse(" " * start + shown[start:end], dialect, builder)
    _list_reasoning(text, shown, builder)
    builder.finish()
    graph = builder.graph if builder.graph.events else None
    return Parsed(graph, used, builder.repairs, builder.repair_count)


def _parse(text: str, dialect: Dialect | None, builder: Builder) -> Dialect:
    dialect = dialect or _recognised(text)
    if dialect is Dialect.STEPS or dialect is None:
        if dialect is None and parse_json(text, builder):
            return Dialect.JSON
        text = with_arrows(text)
        may_be_texts = dialect is None and _ANY_ARROW.search(text) and not has_numbered_edges(text)
        if may_be_texts and parse_texts(text, builder):
            return Dialect.TEXTS
        parse_steps(text, builder)
        return Dialect.STEPS
    parsers = {
        Dialect.DOT: parse_dot,
        Dialect.JSON: parse_json,
        Dialect.MERMAID: parse_mermaid,
        Dialect.TEXTS: parse_texts,
    }
    if not parsers[dialect](text, builder):
        builder.drop(text, 0)
    return dialect


def _recognised(text: str) -> Dialect | None:
    if MERMAID_HEAD.search(text):
        return Dialect.MERMAID
    if HEAD.search(text) and not DESCRIPTION.search(text):
        return Dialect.DOT
    return None


def _last_graph(text: str, dialect: Dialect | None) -> tuple[int, int]:
    """Returns the part of a text that holds the graph: the last code fence with a whole graph, else all."""
    marks = [*_FENCE.finditer(text)]
    blocks = [
        (opening.end(), closing.start()) for opening, closing in zip(marks[::2], marks[1::2], strict=False)
    ]
    whole = [block for block in blocks[-MAX_JSON_STARTS:] if _is_whole(text[slice(*block)], dialect)]
    return whole[-1] if len(whole) > 1 else (0, len(text))


def _is_whole(text: str, dialect: Dialect | None) -> bool:
    """Whether a text is a graph of its own: it declares events, or is one in a dialect with a frame."""
    builder = Builder()
    used = _parse(text, dialect, builder)
    declares = any(map(builder.graph.has_declared, builder.graph.events))
    framed = used in {Dialect.DOT, Dialect.MERMAID, Dialect.JSON}
    return bool(builder.graph.events) and (declares or framed)


def _list_reasoning(text: str, shown: str, builder: Builder) -> None:
    differing = [
        index
        for index, (one, other) in enumerate(zip(text, shown, strict=True))
        if one not in {other, "\ufeff"}
    ]
    if not differing:
        return
    start, end = differing[0], differing[-1] + 1
    builder.note(RepairKind.TEXT_DROPPED, text[start:end], start)


def parse_json(text: str, builder: Builder) -> bool:
    """Reads the first JSON object or array of a text that is a graph with events or edges.

    Returns:
        Whether there is one. Where not, ``builder`` is as it was.
    """
    decoder = json.JSONDecoder()
    position = tried = 0
    while (found := _JSON_START.search(text, position)) and tried < MAX_JSON_STARTS:
        start = found.start()
        position, tried = start + 1, tried + 1
        try:
            value, end = decoder.raw_decode(text, start)
            position = end
            record = read_record(value)
        except (RecordError, RecursionError, ValueError):
            continue
        if not record.events and not record.edges:
            continue
        builder.drop(text[:start], 0)
        builder.graph.scenario = record.scenario
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
