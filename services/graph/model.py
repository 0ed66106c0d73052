"""The graph model: a ``networkx.DiGraph`` with fixed attributes.

Nodes are event ids. Node attributes are ``text`` (possibly empty), ``minutes`` (a float, or ``None`` if the
typical duration is unknown) and ``declared`` (False if only edges name the event). Graph attributes are
``id`` and ``scenario``. Nodes and edges keep the order of the input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import networkx as nx

from dramaturg.graphs.parsing.graph import normalise

ScriptGraph: TypeAlias = "nx.DiGraph[str]"
"""A directed graph over event ids with the attributes of this module."""

Edge: TypeAlias = tuple[str, str]
"""The id of an event, and the id of one that comes after it."""


def new_graph(graph_id: str = "", scenario: str = "") -> ScriptGraph:
    graph: ScriptGraph = nx.DiGraph()
    graph.graph.update(id=graph_id, scenario=scenario)
    return graph


def add_event(graph: ScriptGraph, event: str, text: str = "", minutes: float | None = None) -> None:
    """Adds an event, or declares one that only edges named so far."""
    graph.add_node(event, text=text, minutes=minutes, declared=True)


def add_edge(graph: ScriptGraph, source: str, target: str) -> None:
    """Adds an edge; unknown ends become undeclared events."""
    for event in (source, target):
        if event not in graph:
            graph.add_node(event, text="", minutes=None, declared=False)
    graph.add_edge(source, target)


def with_edges(graph: ScriptGraph, edges: Iterable[Edge]) -> ScriptGraph:
    """A new graph with the events of ``graph`` and the given edges."""
    other = new_graph(graph.graph["id"], graph.graph["scenario"])
    other.add_nodes_from((event, dict(attributes)) for event, attributes in graph.nodes(data=True))
    other.add_edges_from(edges)
    return other


def text_of(graph: ScriptGraph, event: str) -> str:
    """The text of an event, possibly empty."""
    text: str = graph.nodes[event]["text"]
    return text


def minutes_of(graph: ScriptGraph, event: str) -> float | None:
    """The typical duration of an event in minutes; ``None`` if unknown."""
    minutes: float | None = graph.nodes[event]["minutes"]
    return minutes


def sources(graph: ScriptGraph) -> list[str]:
    """The events without a predecessor, in order."""
    return [event for event, degree in graph.in_degree() if degree == 0]


def sinks(graph: ScriptGraph) -> list[str]:
    """The events without a successor, in order."""
    return [event for event, degree in graph.out_degree() if degree == 0]


def max_degree(graph: ScriptGraph) -> int:
    """The largest number of edges into, or out of, one event (proScript, section 4)."""
    return max(
        (degree for degrees in (graph.in_degree(), graph.out_degree()) for _, degree in degrees), default=0
    )


Matrix = tuple[tuple[bool, ...], ...]
"""[i][k]: whether event i of the first graph and event k of the second have the same label."""


def equal_texts(first: ScriptGraph, second: ScriptGraph) -> Matrix:
    """Compares normalised texts; an event without text equals only the one with the same id and no text."""
    return _equal_keys(_text_keys(first), _text_keys(second))


def equal_ids(first: ScriptGraph, second: ScriptGraph) -> Matrix:
    """Compares ids."""
    return _equal_keys(list(first), list(second))


def given_pairs(first: ScriptGraph, second: ScriptGraph, pairs: Iterable[tuple[str, str]]) -> Matrix:
    """Uses the given pairs; the relation need not be transitive."""
    equal = set(pairs)
    return tuple(tuple((one, other) in equal for other in second) for one in first)


def _text_keys(graph: ScriptGraph) -> list[tuple[bool, str]]:
    texts = {event: normalise(text_of(graph, event)) for event in graph}
    return [(bool(text), text or event) for event, text in texts.items()]


def _equal_keys(first: Iterable[object], second: Iterable[object]) -> Matrix:
    others = list(second)
    return tuple(tuple(one == other for other in others) for one in first)
