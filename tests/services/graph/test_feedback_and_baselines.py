"""Breaking cycles, and random graphs."""

from __future__ import annotations

from itertools import permutations
from math import fsum
from random import Random

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.graph.agreement import Preference, majority
from services.graph.baselines import Baseline, NoSingleEndError, draw, expected_f1
from services.graph.check import check
from services.graph.feedback import Weighted, break_lightest
from services.graph.score import Choices, count_edges, measure
from services.graph.solving.feedback import break_least
from tests.support.graphs import graph


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
    breaking = break_lightest(edges, size)
    assert breaking.removed == lightest_by_the_letter(edges)
    assert is_acyclic(edges, breaking.removed)


@given(weighted())
def test_the_least_weight_is_that_of_the_best_order(case: tuple[list[Weighted], int]) -> None:
    edges, size = case
    breaking = break_least(edges, size, 30)
    best = min(
        fsum(w for u, v, w in edges if order.index(u) > order.index(v)) for order in permutations(range(size))
    )
    assert breaking.proven
    assert breaking.weight == pytest.approx(best)
    assert is_acyclic(edges, breaking.removed)


SCRIPT = "r>a r>b a>c b>c c>d d>s r>e e>s"


@pytest.mark.parametrize("kind", list(Baseline))
def test_drawn_graphs_keep_source_and_sink(kind: Baseline) -> None:
    reference = graph(SCRIPT)
    for seed in range(50):
        drawn = draw(reference, kind, Random(seed), 0.7)
        report = check(drawn)
        assert (report.sources, report.sinks) == (["r"], ["s"])
        assert report.canonical
        assert set(drawn) == set(reference)
        assert draw(reference, kind, Random(seed), 0.7).edges == drawn.edges


@pytest.mark.parametrize("edges", [SCRIPT, "r>s", "r>a a>s", "r>a a>b b>s r>b"])
def test_the_closed_form_is_the_mean_over_all_permutations(edges: str) -> None:
    reference = graph(edges)
    middle = [event for event in reference if event not in {"r", "s"}]
    total, count = 0.0, 0
    for order in permutations(middle):
        new = dict(zip(middle, order, strict=True)) | {"r": "r", "s": "s"}
        permuted = nx.relabel_nodes(reference, new)
        measures = measure(count_edges(permuted, reference), Choices())
        assert measures is not None
        total, count = total + measures.f1, count + 1
    assert expected_f1(reference) == pytest.approx(total / count)


def test_several_sources_cannot_be_drawn() -> None:
    with pytest.raises(NoSingleEndError, match="2 sources"):
        draw(graph("a>c b>c"), Baseline.PERMUTE_MIDDLE, Random(0), 0.7)


def test_a_majority_is_more_than_half() -> None:
    better, equal, worse = Preference.BETTER, Preference.EQUAL, Preference.WORSE
    assert majority([better, better, worse], split=equal) is better
    assert majority([better, worse], split=Preference.UNDECIDED) is Preference.UNDECIDED
    assert majority([better, better, equal, worse], split=equal) is equal
    assert majority([], split=equal) is Preference.UNDECIDED
