"""Reachability and checks, against networkx on random graphs."""

from __future__ import annotations

import time

import networkx as nx
from hypothesis import given

from services.graph.check import check
from services.graph.model import ScriptGraph
from services.graph.order import Order
from tests.support.graphs import from_pairs, graphs


def closure(of: ScriptGraph) -> set[tuple[str, str]]:
    order = Order(of)
    return {(a, b) for a in of for b in of if order.after[a] & order.bit[b]}


@given(graphs())
def test_reachability_is_networkx_closure(made: ScriptGraph) -> None:
    assert closure(made) == set(nx.transitive_closure(made).edges)


@given(graphs(acyclic=True))
def test_reduction_keeps_reachability_is_networkx_reduction_and_idempotent(made: ScriptGraph) -> None:
    reduced = Order(made).reduction()
    assert closure(reduced) == closure(made)
    assert set(reduced.edges) == set(nx.transitive_reduction(made).edges)
    assert Order(reduced).shortcut_edges() == []
    assert reduced.nodes == made.nodes


@given(graphs(acyclic=True))
def test_depth_is_the_longest_path(made: ScriptGraph) -> None:
    assert Order(made).depth == (nx.dag_longest_path_length(made) if len(made) else 0)


def test_the_largest_graphs_take_no_minutes() -> None:
    size = 5000
    made = from_pairs(
        size, [(i, min(size - 1, i + step)) for i in range(size - 1) for step in (1, 2, 5, 700)]
    )
    start = time.process_time()
    assert len(check(made).shortcut_edges) > size
    assert time.process_time() - start < 5
