"""Reachability and checks, against networkx on random graphs."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given

from services.graph.check import NewEvent, canonical_form, check
from services.graph.model import ScriptGraph, add_event
from tests.support.graphs import graph, graphs


@given(graphs())
def test_the_named_cycle_is_one(made: ScriptGraph) -> None:
    report = check(made)
    assert report.acyclic == nx.is_directed_acyclic_graph(made)
    for source, target in zip(report.cycle, report.cycle[1:] + report.cycle[:1], strict=True):
        assert made.has_edge(source, target)
    assert len(set(report.cycle)) == len(report.cycle)


def test_what_is_wrong_is_named() -> None:
    report = check(graph("a>b b>c a>c x y>y"))
    assert (report.sources, report.sinks) == (["a", "x"], ["c", "x"])
    assert report.isolated == ["x"]
    assert report.cycle == ["y"]
    assert report.unreachable == ["y"]
    assert report.shortcut_edges == []
    assert check(graph("a>b b>c a>c x"), root="b").unreachable == ["a", "x"]
    assert check(graph("a>b b>c a>c")).shortcut_edges == [("a", "c")]


def test_canonical_is_reduced_with_one_source_and_one_sink() -> None:
    assert check(graph("a>b b>c")).canonical
    assert not check(graph("a>b b>c a>c")).canonical
    assert not check(graph("a>b c")).canonical


def test_the_critical_path_is_the_longest_in_time() -> None:
    made = graph("r>a r>b a>s b>s")
    for event, minutes in {"a": 5.0, "b": 30.0, "s": 1.0}.items():
        add_event(made, event, event, minutes)
    timing = check(made).timing
    assert timing is not None
    assert (timing.total_minutes, timing.critical_path_minutes) == (36.0, 31.0)
    assert timing.critical_path == ["r", "b", "s"]
    assert timing.untimed == ["r"]
    assert check(graph("a>b")).timing is None


def test_a_root_or_leaf_must_be_new() -> None:
    with pytest.raises(ValueError, match="already"):
        canonical_form(graph("a>b"), NewEvent("b"), None)
    with pytest.raises(ValueError, match="same id"):
        canonical_form(graph("a>b"), NewEvent("x"), NewEvent("x"))
