"""The graph model, its order, its validation and its canonical form."""

from __future__ import annotations

import time

import networkx as nx
import pytest
from hypothesis import given

from dramaturg.graphs.parsing.builder import normalise
from services.graph.model import NewEvent, Order, ScriptGraph, add_event, canonical_form, check
from tests.support.graphs import from_pairs, graph, graphs


@pytest.mark.parametrize(
    ("one", "other"),
    [("Put it  away.", "put it away"), ("Straße", "STRASSE;"), ("café", "cafe\u0301"), ("ﬁx", "fix")],
)
def test_labels_are_normalised(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


def test_different_labels_stay_different() -> None:
    assert normalise("turn on the oven") != normalise("turn off the oven")
    assert normalise("2.5 cups") != normalise("25 cups")


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


@given(graphs())
def test_the_named_cycle_is_one(made: ScriptGraph) -> None:
    report = check(made)
    assert report.acyclic == nx.is_directed_acyclic_graph(made)
    for source, target in zip(report.cycle, [*report.cycle[1:], *report.cycle[:1]], strict=True):
        assert made.has_edge(source, target)
    assert len(set(report.cycle)) == len(report.cycle)


def test_what_is_wrong_is_named() -> None:
    report = check(graph("a>b b>c a>c x y>y"))
    assert (list(report.source_ids), list(report.sink_ids)) == (["a", "x"], ["c", "x"])
    assert report.isolated_ids == ["x"]
    assert report.cycle == ["y"]
    assert report.unreachable_ids == ["y"]
    assert not report.shortcut_edges
    assert check(graph("a>b b>c a>c x"), root="b").unreachable_ids == ["a", "x"]
    shortcuts = check(graph("a>b b>c a>c")).shortcut_edges
    assert [(one.source_id, one.target_id) for one in shortcuts] == [("a", "c")]


def test_canonical_is_reduced_with_one_source_and_one_sink() -> None:
    assert check(graph("a>b b>c")).canonical
    assert not check(graph("a>b b>c a>c")).canonical
    assert not check(graph("a>b c")).canonical


def test_the_critical_path_is_the_longest_in_time() -> None:
    made = graph("r>a r>b a>s b>s")
    for event, minutes in {"a": 5.0, "b": 30.0, "s": 1.0}.items():
        add_event(made, event, event, minutes)
    timing = check(made).timing
    assert (timing.total_minutes, timing.critical_path_minutes) == (36.0, 31.0)
    assert timing.critical_path == ["r", "b", "s"]
    assert timing.untimed_ids == ["r"]
    assert not check(graph("a>b")).HasField("timing")


def test_a_root_or_leaf_must_be_new() -> None:
    with pytest.raises(ValueError, match="already"):
        canonical_form(graph("a>b"), NewEvent("b"), None)
    with pytest.raises(ValueError, match="same id"):
        canonical_form(graph("a>b"), NewEvent("x"), NewEvent("x"))
