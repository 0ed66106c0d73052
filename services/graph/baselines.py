"""Random baseline graphs over given events (proScript, Table 1, random).

The source and the sink are fixed, because models receive the scenario, which is the sink, and find the source
trivially. Permuting the middle and random DAGs both reproduce the paper's F1 of about 21 on its development
set; chains have a lower one.
"""

from __future__ import annotations

from enum import Enum
from itertools import combinations, pairwise
from random import Random

from services.graph.model import Edge, ScriptGraph, sinks, sources, with_edges
from services.graph.order import Order


class Baseline(Enum):
    PERMUTE_MIDDLE = "permute-middle"
    """The shape of the graph, with the events between source and sink permuted."""
    RANDOM_DAG = "random-dag"
    """Random edges along a random order of the events between source and sink, reduced."""
    RANDOM_CHAIN = "random-chain"
    """A chain from source to sink."""


class NoSingleEndError(ValueError):
    """The graph does not have exactly one source and one different sink."""


def ends(graph: ScriptGraph) -> Edge:
    """The only source and the only sink.

    Raises:
        NoSingleEndError: There is not exactly one of each, or they are the same event.
    """
    first, last = sources(graph), sinks(graph)
    if len(first) != 1 or len(last) != 1 or first == last:
        raise NoSingleEndError(
            f"has {len(first)} sources and {len(last)} sinks; it needs one of each, and different"
        )
    return first[0], last[0]


def draw(graph: ScriptGraph, baseline: Baseline, rng: Random, edge_probability: float) -> ScriptGraph:
    """Draws a graph over the events of ``graph``.

    Args:
        graph: A graph with one source and one sink.
        baseline: How to draw.
        rng: The random generator.
        edge_probability: For ``RANDOM_DAG``, the probability of each edge before the reduction.

    Raises:
        NoSingleEndError: The graph has not one source and one sink.
    """
    source, sink = ends(graph)
    middle = [event for event in graph if event not in {source, sink}]
    order = rng.sample(middle, len(middle))
    if baseline is Baseline.PERMUTE_MIDDLE:
        renamed = dict(zip(middle, order, strict=True)) | {source: source, sink: sink}
        return with_edges(graph, ((renamed[before], renamed[after]) for before, after in graph.edges))
    if baseline is Baseline.RANDOM_CHAIN:
        return with_edges(graph, pairwise([source, *order, sink]))
    drawn = (pair for pair in combinations(order, 2) if rng.random() < edge_probability)
    inner = Order(with_edges(graph.subgraph(order), drawn)).reduction()
    first, last = sources(inner), sinks(inner)
    joined = [(source, event) for event in first] + [(event, sink) for event in last]
    return with_edges(graph, [*(joined or [(source, sink)]), *inner.edges])


def expected_f1(graph: ScriptGraph) -> float:
    """The mean F1 of ``PERMUTE_MIDDLE`` against the graph itself, over all permutations, in closed form.

    An edge between two of the ``k`` middle events is matched with probability 1 / (k (k - 1)), one between an
    end and the middle with 1 / k. The drawn graph has as many edges as the graph, so F1, precision and recall
    are equal.

    Raises:
        NoSingleEndError: The graph has not one source and one sink.
    """
    source, sink = ends(graph)
    k = len(graph) - 2
    fixed = int(graph.has_edge(source, sink))
    first = graph.out_degree(source) - fixed
    last = graph.in_degree(sink) - fixed
    edges = graph.number_of_edges()
    inner = edges - first - last - fixed
    hits = float(fixed)
    if k > 0:
        hits += (first**2 + last**2) / k
    if k > 1:
        hits += inner**2 / (k * (k - 1))
    return hits / edges
