"""FeedbackArcSet cycles, and random graphs."""

from __future__ import annotations

from itertools import permutations
from math import fsum

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.graph.cycles import Weighted, remove_lightest
from services.graph.solver.worker import minimum_feedback_arc_set


@st.composite
def weighted(draw: st.DrawFn) -> tuple[list[Weighted], int]:
    size = draw(st.integers(2, 5))
    pairs = [(i, j) for i in range(size) for j in range(size) if i != j]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True))
    return [(i, j, draw(st.integers(1, 20)) / 20) for i, j in chosen], size


def is_acyclic(edges: list[Weighted], removed: list[Weighted]) -> bool:
    left = nx.DiGraph((u, v) for u, v, _ in edges if (u, v) not in {(a, b) for a, b, _ in removed})
    return bool(nx.is_directed_acyclic_graph(left))


def lightest_by_the_letter(edges: list[Weighted]) -> list[Weighted]:
    """Removes the lightest edge on a cycle, looking for cycles anew each time."""
    left = list(edges)
    removed: list[Weighted] = []
    while True:
        components = nx.strongly_connected_components(nx.DiGraph((u, v) for u, v, _ in left))
        of = {event: i for i, events in enumerate(components) for event in events}
        on_cycles = [(w, u, v) for u, v, w in left if of[u] == of[v]]
        if not on_cycles:
            return removed
        weight, source, target = min(on_cycles)
        left.remove((source, target, weight))
        removed.append((source, target, weight))


@given(weighted())
def test_one_pass_is_the_paper_s_iteration(case: tuple[list[Weighted], int]) -> None:
    edges, size = case
    arcs = remove_lightest(edges, size)
    assert arcs.removed == lightest_by_the_letter(edges)
    assert is_acyclic(edges, arcs.removed)


@given(weighted())
def test_the_least_weight_is_that_of_the_best_order(case: tuple[list[Weighted], int]) -> None:
    edges, size = case
    arcs = minimum_feedback_arc_set(edges, size, 30)
    best = min(
        fsum(w for u, v, w in edges if order.index(u) > order.index(v)) for order in permutations(range(size))
    )
    assert arcs.proven
    assert arcs.weight == pytest.approx(best)
    assert is_acyclic(edges, arcs.removed)
