"""Reads "step0: find the recipe; step1: mix; step0 -> step1", as proScript's models write (Figure 6).

One pass finds heads: "step3:" begins an event, "step3 ->" or "3 ->" an edge or a chain of edges. An event's
text ends at its semicolon; where that is missing at the end of its line; and at the next head in any case.
What stands between is dropped and listed.
"""

from __future__ import annotations

import re

from services.graph.parsing.building import Builder, RepairKind

_ARROW = r"(?:-{1,3}>|={1,2}>|[→⟶⇒➔➜])"
_STEP = r"step[ \t_]{0,3}"
_HEAD = re.compile(
    rf"(?<!\w){_STEP}(?P<event>\d{{1,9}})[ \t]{{0,20}}:"
    rf"|(?<!\w)(?:{_STEP})?(?P<source>\d{{1,9}})[ \t]{{0,20}}{_ARROW}",
    re.IGNORECASE,
)
DESCRIPTION = re.compile(rf"(?<!\w){_STEP}\d{{1,9}}[ \t]{{0,20}}:\s", re.IGNORECASE)
"""How a step is described; in DOT, a colon begins a port and nothing stands between."""
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
