"""Events as shown to a model, by numbers that do not depend on their order, and the graphs in its answers.

Reads graphs in answers that have not the form asked for: steps, DOT, Mermaid, pairs, texts, other JSON. The
order of precedence: the JSON form asked for; else the dialect that ``dramaturg.graphs.parsing`` finds. An
event is the one whose text is that of a declared event, else the one with its number, else the one with its
text. What is not understood is listed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge
from dramaturg.graphs.parsing.builder import ReadGraph, RepairKind, TooLargeError, normalise
from dramaturg.graphs.parsing.formats import parse
from dramaturg.judge.excerpts import Excerpt
from dramaturg.judge.fence import fence, fence_items
from dramaturg.judge.shapes import ListOf, Number, Record

_LONGEST_SCENARIO = 10_000
_LONGEST_EVENTS = 200_000


@dataclass(frozen=True)
class NumberedEvents:
    """Events in the order shown, numbered from 1."""

    events: tuple[Event, ...]

    @classmethod
    def of(cls, scenario: str, events: Iterable[Event]) -> NumberedEvents:
        """Orders events by a hash of scenario and text.

        The ids and the order in the request, which may reveal the answer, do not reach the model. Equal sets
        of events make equal questions, so the ledger answers repeats.
        """
        return cls(tuple(sorted(events, key=lambda event: _key(scenario, event.text))))

    @property
    def by_number(self) -> dict[int, Event]:
        """The events by the numbers with which they are shown."""
        return dict(enumerate(self.events, start=1))

    @property
    def ids(self) -> dict[int, str]:
        return {number: event.id for number, event in enumerate(self.events, start=1)}

    @property
    def excerpt(self) -> Excerpt:
        """The numbered texts as shown in the prompt."""
        texts = [event.text for event in self.events]
        return Excerpt((fence_items("events", "Event", texts, limit=_LONGEST_EVENTS),))


def scenario_excerpt(scenario: str) -> Excerpt:
    """The scenario as shown in the prompt."""
    return Excerpt((fence("scenario", scenario, limit=_LONGEST_SCENARIO),))


def _key(scenario: str, text: str) -> str:
    return hashlib.sha256(f"{len(scenario)}\n{scenario}\n{text}".encode()).hexdigest()


EDGES = ListOf(
    Record(
        {
            "before": Number("the number of an event"),
            "after": Number("the number of an event that cannot begin before that one is over"),
        }
    )
)
"""The shape of a list of edges."""


class ReadEdges(NamedTuple):
    """The edges of an answer."""

    edges: list[EventEdge]
    """Each edge once, in the order of the answer."""
    dropped: list[str]
    """The dropped edges, in words."""


def read_edges(entries: Sequence[Any], ids: Mapping[int, str]) -> ReadEdges:
    """Reads edges between numbered events.

    Edges of unknown events, edges from an event to itself and repeated edges are dropped and reported.

    Args:
        entries: The edges, with the members "before" and "after".
        ids: The events' ids by number.
    """
    edges: dict[tuple[str, str], EventEdge] = {}
    dropped: list[str] = []
    for entry in entries:
        members = entry if isinstance(entry, Mapping) else {}
        ends = _End.of(members.get("before"), ids), _End.of(members.get("after"), ids)
        pair = ends[0].id, ends[1].id
        said = f"edge from event {ends[0]} to event {ends[1]}"
        unknown = [end for end in ends if not end.id]
        if unknown:
            dropped.append(f"{said}: there is no event {unknown[0]}")
        elif pair[0] == pair[1]:
            dropped.append(f"{said}: an event does not come before itself")
        elif pair in edges:
            dropped.append(f"{said}: it is repeated")
        else:
            edges[pair] = EventEdge(source_id=pair[0], target_id=pair[1])
    return ReadEdges(list(edges.values()), dropped)


class _End(NamedTuple):
    answered: Any
    id: str
    """Returns the id of an event, or "" where there is no such event."""

    @classmethod
    def of(cls, answered: Any, ids: Mapping[int, str]) -> _End:
        # In Python, True is an int.
        is_number = isinstance(answered, int) and not isinstance(answered, bool)
        return cls(answered, ids.get(answered, "") if is_number else "")

    def __str__(self) -> str:
        return repr(self.id) if self.id else f"number {self.answered}"


_NUMBER = re.compile(r"(?:(?:step|event|node|[es])[ _]?)?#?(\d{1,9})", re.IGNORECASE)
_LOSSES = frozenset(
    {
        RepairKind.TEXT_DROPPED,
        RepairKind.EDGE_INCOMPLETE,
        RepairKind.UNDIRECTED_EDGE_DROPPED,
        RepairKind.EVENT_REDEFINED,
    }
)


class WrittenGraph(NamedTuple):
    """A graph and the parts of the answer that were dropped."""

    events: list[Event]
    """The events, with ids as the model gave them."""
    edges: list[EventEdge]
    """The edges between them."""
    dropped: list[str]
    """The dropped parts, in words."""


class _Reading(NamedTuple):
    """A graph, and what was left out of its text, in words."""

    graph: ReadGraph
    dropped: list[str]


def _read(text: str) -> _Reading | None:
    """Reads the graph of an answer. None: it has no edge."""
    try:
        parsed = parse(text)
    except TooLargeError:
        return None
    if parsed.graph is None or not parsed.graph.edges:
        return None
    return _Reading(parsed.graph, [f"left out: {one.text}" for one in parsed.repairs if one.kind in _LOSSES])


def read_written_graph(text: str) -> WrittenGraph | None:
    """Reads the events and edges that a model wrote in any notation. None: no event has a text.

    Edges of events without a text are left out and listed.
    """
    answer = _read(text)
    if answer is None:
        return None
    texts = {event: _text(event, answer.graph) for event in answer.graph.events}
    known = {normalise(shown): event for event, shown in texts.items() if answer.graph.has_declared(event)}
    # Edges may name declared events by their texts.
    same = {
        event: event if answer.graph.has_declared(event) else known.get(normalise(event), "")
        for event in texts
    }
    has_declared = bool(known)
    events = [
        Event(id=event, text=shown)
        for event, shown in texts.items()
        if shown and (same[event] == event or not has_declared)
    ]
    ids = {event.id for event in events}
    edges: dict[tuple[str, str], EventEdge] = {}
    dropped = list(answer.dropped)
    for source, target in answer.graph.edges:
        pair = same[source] or source, same[target] or target
        if not {*pair} <= ids or pair[0] == pair[1]:
            dropped.append(
                f"edge from event {source!r} to event {target!r}: it names no two events of the answer"
            )
        elif pair not in edges:
            edges[pair] = EventEdge(source_id=pair[0], target_id=pair[1])
    return WrittenGraph(events, list(edges.values()), dropped) if events else None


def read_edges_between(text: str, events: Mapping[int, Event]) -> ReadEdges | None:
    """Reads the edges between given events in any notation. None: it has no edge between two of them.

    Args:
        text: The answer.
        events: The events by the numbers with which they were shown.
    """
    answer = _read(text)
    if answer is None:
        return None
    by_text = {normalise(event.text): event.id for event in events.values()}
    declared = {
        event: by_text.get(normalise(_text(event, answer.graph)), "")
        for event in answer.graph.events
        if answer.graph.has_declared(event)
    }
    # An answer that declares the events may have numbers of its own.
    has_own_numbers = any(declared.values())
    edges: dict[tuple[str, str], EventEdge] = {}
    dropped = list(answer.dropped)
    for ends in answer.graph.edges:
        source, target = (
            declared.get(end)
            or by_text.get(normalise(end))
            or ("" if has_own_numbers else _numbered(end, events))
            for end in ends
        )
        if not source or not target or source == target:
            dropped.append(f"edge from {ends[0]!r} to {ends[1]!r}: it names no two events")
        elif (source, target) not in edges:
            edges[source, target] = EventEdge(source_id=source, target_id=target)
    return ReadEdges(list(edges.values()), dropped) if edges else None


def _text(event: str, graph: ReadGraph) -> str:
    """The text of an event; of one that only edges name its name, where that is no number."""
    read = graph.events[event]
    if read.declared:
        return read.text
    return "" if _NUMBER.fullmatch(event.strip()) else event


def _numbered(name: str, events: Mapping[int, Event]) -> str:
    number = _NUMBER.fullmatch(name.strip())
    event = events.get(int(number[1])) if number else None
    return event.id if event is not None else ""
