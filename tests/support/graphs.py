"""Small script graphs, and strategies that draw them."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import networkx as nx
from hypothesis import strategies as st

from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge, ScriptGraph
from services.graph.distance.problem import Mode, Problem
from services.graph.model import ScriptGraph as Graph
from services.graph.model import add_edge, add_event, new_graph


def message(edges: str, texts: dict[str, str] | None = None, graph_id: str = "") -> ScriptGraph:
    """A graph such as ``message("a>b b>c")``; an event's text is its id unless ``texts`` says otherwise."""
    pairs = [tuple(edge.split(">")) for edge in edges.split() if ">" in edge]
    names = dict.fromkeys([*(texts or {}), *edges.replace(">", " ").split()])
    return ScriptGraph(
        id=graph_id,
        events=[Event(id=name, text=(texts or {}).get(name, name)) for name in names],
        edges=[EventEdge(source_id=source, target_id=target) for source, target in pairs],
    )


def graph(edges: str) -> Graph:
    """The same as the service's own type."""
    made = new_graph()
    for name in dict.fromkeys(edges.replace(">", " ").split()):
        add_event(made, name, name)
    for edge in edges.split():
        if ">" in edge:
            source, target = edge.split(">")
            add_edge(made, source, target)
    return made


def from_pairs(size: int, pairs: Iterable[tuple[int, int]]) -> Graph:
    made = new_graph()
    for event in range(size):
        add_event(made, str(event), str(event))
    for source, target in pairs:
        add_edge(made, str(source), str(target))
    return made


@st.composite
def graphs(draw: st.DrawFn, *, max_size: int = 8, acyclic: bool = False) -> Graph:
    """Graphs of up to ``max_size`` events with any edges, self-loops included, or none that close a cycle."""
    size = draw(st.integers(0, max_size))
    possible = [(i, j) for i in range(size) for j in range(size) if not acyclic or i < j]
    chosen = draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    names = draw(st.permutations(range(size)))
    return from_pairs(size, [(names[i], names[j]) for i, j in chosen])


@st.composite
def problems(draw: st.DrawFn, *, max_size: int = 5, modes: Iterable[Mode] = tuple(Mode)) -> Problem:
    """Distance problems: any two graphs, any relation between their labels."""
    mode = draw(st.sampled_from(list(modes)))
    n1 = draw(st.integers(0, max_size))
    n2 = draw(st.integers(n1, max_size))

    def edges(size: int) -> tuple[tuple[int, int], ...]:
        possible = [(i, j) for i in range(size) for j in range(size)]
        return tuple(draw(st.lists(st.sampled_from(possible), unique=True, max_size=8))) if possible else ()

    row = st.lists(st.booleans(), min_size=n2, max_size=n2).map(tuple)
    equal = draw(st.lists(row, min_size=n1, max_size=n1).map(tuple))
    if mode is Mode.LABEL_FREE:
        equal = tuple((True,) * n2 for _ in range(n1))
    return Problem((n1, n2), edges(n1), edges(n2), equal, mode)


def random_script(size: int, rng: Random) -> nx.DiGraph[int]:
    """A reduced acyclic graph over 0..size-1 of the shape of proScript's: mostly a chain."""
    made: nx.DiGraph[int] = nx.DiGraph()
    made.add_nodes_from(range(size))
    for event in range(1, size):
        made.add_edge(event - 1 if rng.random() < 0.75 else rng.randrange(max(0, event - 3), event), event)
    for event in range(size - 1):
        if made.out_degree(event) == 0:
            made.add_edge(event, rng.randrange(event + 1, min(size, event + 4)))
    return nx.transitive_reduction(made)
