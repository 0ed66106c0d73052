"""Validation of script graphs and their canonical form (proScript, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from services.graph.model import (
    Edge,
    ScriptGraph,
    add_edge,
    add_event,
    max_degree,
    minutes_of,
    sinks,
    sources,
)
from services.graph.order import Order


@dataclass(frozen=True)
class Timing:
    """The duration of a script in minutes. Events without a duration count as 0 and are listed."""

    total_minutes: float
    critical_path_minutes: float
    critical_path: list[str]
    untimed: list[str]


@dataclass(frozen=True)
class Report:
    """The properties of a graph; see ``GraphReport`` in the contract."""

    event_count: int
    edge_count: int
    cycle: list[str]
    cyclic_components: list[list[str]]
    shortcut_edges: list[Edge]
    sources: list[str]
    sinks: list[str]
    unreachable: list[str]
    isolated: list[str]
    undeclared: list[str]
    max_degree: int
    depth: int
    timing: Timing | None

    @property
    def acyclic(self) -> bool:
        return not self.cycle

    @property
    def canonical(self) -> bool:
        """Whether it is a transitive reduction with one source and one sink, as all proScript graphs are."""
        return self.acyclic and not self.shortcut_edges and len(self.sources) == len(self.sinks) == 1


@dataclass(frozen=True)
class NewEvent:
    id: str
    text: str = ""
    minutes: float | None = None


def check(graph: ScriptGraph, root: str | None = None) -> Report:
    """Checks a graph, in time linear in its size except for the bit sets of ``Order``.

    Args:
        graph: Any graph.
        root: The event from which the others should be reachable; ``None``: any source.

    Raises:
        KeyError: ``root`` is not an event of the graph.
    """
    order = Order(graph)
    starts = sources(graph) if root is None else [root]
    reached = 0
    for start in starts:
        reached |= order.bit[start] | order.after[start]
    return Report(
        event_count=graph.number_of_nodes(),
        edge_count=graph.number_of_edges(),
        cycle=find_cycle(graph, order),
        cyclic_components=order.cyclic_components,
        shortcut_edges=order.shortcut_edges() if order.acyclic else [],
        sources=sources(graph),
        sinks=sinks(graph),
        unreachable=[event for event in graph if not order.bit[event] & reached],
        isolated=[event for event, degree in graph.degree() if degree == 0],
        undeclared=[event for event, declared in graph.nodes(data="declared") if not declared],
        max_degree=max_degree(graph),
        depth=order.depth,
        timing=measure_time(graph) if order.acyclic else None,
    )


def find_cycle(graph: ScriptGraph, order: Order) -> list[str]:
    """The events of one cycle, in order; empty where there is none."""
    if order.acyclic:
        return []
    smallest = min(order.cyclic_components, key=len)
    return [source for source, _ in nx.find_cycle(graph.subgraph(smallest).copy())]


def measure_time(graph: ScriptGraph) -> Timing | None:
    """The total time and the critical path of an acyclic graph; ``None`` without durations."""
    minutes = {event: minutes_of(graph, event) for event in graph}
    known = {event: value for event, value in minutes.items() if value is not None}
    if not known:
        return None
    finish: dict[str, float] = {}
    latest: dict[str, str | None] = {}
    for event in nx.topological_sort(graph):
        before = max(graph.predecessors(event), key=finish.__getitem__, default=None)
        latest[event] = before
        finish[event] = known.get(event, 0.0) + (finish[before] if before is not None else 0.0)
    path: list[str] = []
    last = max(finish, key=finish.__getitem__)
    at: str | None = last
    while at is not None:
        path.append(at)
        at = latest[at]
    untimed = [event for event, value in minutes.items() if value is None]
    return Timing(sum(known.values()), finish[last], path[::-1], untimed)


def canonical_form(graph: ScriptGraph, root: NewEvent | None, leaf: NewEvent | None) -> ScriptGraph:
    """The transitive reduction, with a new root before all sources and a new leaf after all sinks.

    Raises:
        ValueError: The graph has a cycle, or the id of a new event is in use.
    """
    for new in (root, leaf):
        if new is not None and new.id in graph:
            raise ValueError(f"the graph already has an event {new.id!r}")
    if root is not None and leaf is not None and root.id == leaf.id:
        raise ValueError(f"root and leaf have the same id {root.id!r}")
    reduced = Order(graph).reduction()
    if root is not None:
        first = sources(reduced)
        add_event(reduced, root.id, root.text, root.minutes)
        for event in first:
            add_edge(reduced, root.id, event)
    if leaf is not None:
        last = sinks(reduced)
        add_event(reduced, leaf.id, leaf.text, leaf.minutes)
        for event in last:
            add_edge(reduced, event, leaf.id)
    return reduced
