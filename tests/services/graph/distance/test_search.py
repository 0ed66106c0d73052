"""The edit distance against definitions, theorems, exhaustive search and networkx."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from random import Random

import networkx as nx
import pytest
from hypothesis import given, settings

from services.graph.distance.problem import UNMAPPED, Edits, Mode, Problem
from services.graph.distance.search import MAX_MAPPINGS, Solution, branch_bound, improve, search
from tests.support.graphs import problems, random_script


def solve(problem: Problem, seconds: float = 60, enumerated: int = 0) -> Solution:
    """The answer by bounds and programs, also for graphs whose mappings are few."""
    *_, last = search(problem, seconds, enumerated=enumerated)
    return last


def best_by_trying_all(problem: Problem) -> Edits:
    """The edits of the best mapping by the tie rule, found by looking at every mapping."""
    n1, n2 = problem.sizes
    mappings = set(permutations([*range(n2), *[UNMAPPED] * n1], n1))
    if problem.mode is Mode.ANCHORED:
        anchored = {m: sum(k >= 0 and problem.equal[i][k] for i, k in enumerate(m)) for m in mappings}
        most = max(anchored.values())
        mappings = {m for m in mappings if anchored[m] == most}
    edits = [problem.edits(mapping) for mapping in mappings]
    return min(edits, key=lambda e: (e.cost, e.replaced_events, e.replaced_edges))


def labelled(
    graph: nx.DiGraph[int], labels: list[str], other: nx.DiGraph[int], others: list[str], mode: Mode
) -> Problem:
    if len(graph) > len(other):
        graph, labels, other, others = other, others, graph, labels
    same = mode is Mode.LABEL_FREE
    return Problem(
        (len(graph), len(other)),
        tuple(graph.edges),
        tuple(other.edges),
        tuple(tuple(same or one == two for two in others) for one in labels),
        mode,
    )


def random_labelled(size: int, rng: Random) -> tuple[nx.DiGraph[int], list[str]]:
    return random_script(size, rng), [rng.choice("abcdefgh") for _ in range(size)]


@settings(deadline=None, max_examples=80)
@given(problems(max_size=4))
def test_it_is_the_best_of_all_mappings(problem: Problem) -> None:
    expected = best_by_trying_all(problem)
    for solution in (solve(problem), solve(problem, enumerated=MAX_MAPPINGS)):
        assert solution.proven
        assert solution.edits_proven
        assert solution.edits == expected
        assert problem.edits(solution.mapping) == solution.edits


@settings(deadline=None, max_examples=80)
@given(problems(max_size=6))
def test_bounds_and_theorems(problem: Problem) -> None:
    lower, mapping = branch_bound(problem)
    solution = solve(problem)
    assert problem.cost_of(lower) <= solution.edits.cost <= problem.edits(improve(problem, mapping)).cost
    # Events are never deleted here and inserted there: to match the two would be cheaper.
    assert min(solution.edits.deleted_events, solution.edits.inserted_events) == 0
    difference = len(problem.first_edges) - len(problem.second_edges)
    assert solution.edits.deleted_edges - solution.edits.inserted_edges == difference
    if problem.mode in {Mode.STRUCTURAL, Mode.LABEL_FREE}:
        assert solution.edits.replaced_edges == 0


@pytest.mark.parametrize("mode", [Mode.STRUCTURAL, Mode.LABEL_FREE])
def test_it_equals_networkx(mode: Mode) -> None:
    rng = Random(3)
    for _ in range(40):
        (one, labels), (other, others) = (random_labelled(rng.randint(2, 6), rng) for _ in range(2))
        for graph, names in ((one, labels), (other, others)):
            nx.set_node_attributes(graph, dict(enumerate(names)), "label")
        match = (lambda a, b: a["label"] == b["label"]) if mode is Mode.STRUCTURAL else None
        expected = nx.graph_edit_distance(one, other, node_match=match)
        assert solve(labelled(one, labels, other, others, mode)).edits.cost == expected


def test_replaced_edges_are_networkx_edges_with_their_ends_labels() -> None:
    """With an edge's two ends as its label, networkx's distance is the PROSCRIPT mode's."""
    rng = Random(4)
    for _ in range(40):
        (one, labels), (other, others) = (random_labelled(rng.randint(2, 6), rng) for _ in range(2))
        for graph, names in ((one, labels), (other, others)):
            nx.set_node_attributes(graph, dict(enumerate(names)), "label")
            nx.set_edge_attributes(graph, {(u, v): names[u] + names[v] for u, v in graph.edges}, "ends")
        expected = nx.graph_edit_distance(
            one,
            other,
            node_match=lambda a, b: a["label"] == b["label"],
            edge_match=lambda a, b: a["ends"] == b["ends"],
        )
        assert solve(labelled(one, labels, other, others, Mode.PROSCRIPT)).edits.cost == expected


@pytest.mark.parametrize("mode", list(Mode))
def test_it_is_symmetric_and_zero_only_for_equal_graphs(mode: Mode) -> None:
    rng = Random(5)
    for _ in range(25):
        size = rng.randint(2, 7)
        (one, labels), (other, others) = (random_labelled(size, rng) for _ in range(2))
        there = solve(labelled(one, labels, other, others, mode))
        back = solve(labelled(other, others, one, labels, mode))
        assert there.edits.reversed() == back.edits
        nx.set_node_attributes(one, dict(enumerate(labels)), "label")
        nx.set_node_attributes(other, dict(enumerate(others)), "label")
        match = None if mode is Mode.LABEL_FREE else (lambda a, b: a["label"] == b["label"])
        assert (there.edits.cost == 0) == nx.is_isomorphic(one, other, node_match=match)
        assert solve(labelled(one, labels, one, labels, mode)).edits.cost == 0


def test_the_structural_mode_satisfies_the_triangle_inequality() -> None:
    rng = Random(6)
    for _ in range(30):
        a, b, c = (random_labelled(rng.randint(2, 7), rng) for _ in range(3))
        ab, bc, ac = (
            solve(labelled(*x, *y, Mode.STRUCTURAL)).edits.cost for x, y in ((a, b), (b, c), (a, c))
        )
        assert ac <= ab + bc


def test_anchored_with_the_same_events_is_the_number_of_differing_edges() -> None:
    rng = Random(7)
    for _ in range(30):
        size = rng.randint(2, 12)
        one, other = random_script(size, rng), random_script(size, rng)
        names = [str(i) for i in range(size)]
        anchored = solve(labelled(one, names, other, names, Mode.ANCHORED))
        assert anchored.edits.cost == len(set(one.edges) ^ set(other.edges))
        assert solve(labelled(one, names, other, names, Mode.PROSCRIPT)).edits.cost <= anchored.edits.cost


def test_the_tie_rule_prefers_fewer_replaced_events() -> None:
    # a -> b against b -> a: to replace both labels costs as much as to delete one edge and insert the other.
    problem = Problem((2, 2), ((0, 1),), ((1, 0),), ((True, False), (False, True)), Mode.STRUCTURAL)
    solution = solve(problem)
    assert solution.edits == Edits(0, 0, 0, 1, 1, 0)


def test_no_time_leaves_bounds() -> None:
    rng = Random(8)
    one, other = random_script(30, rng), random_script(30, rng)
    problem = labelled(one, ["a"] * 30, other, ["b"] * 30, Mode.PROSCRIPT)
    solution = solve(problem, seconds=0.0)
    assert solution.lower <= solution.edits.cost
    assert not solution.edits_proven


def test_a_problem_too_large_for_the_program_keeps_its_bounds() -> None:
    dense = tuple((i, j) for i in range(30) for j in range(i + 1, 30))
    labels = tuple(tuple(i == j for j in range(30)) for i in range(30))
    problem = Problem((30, 30), dense, tuple((j, i) for i, j in dense[:-1]), labels, Mode.PROSCRIPT)
    solution = solve(problem)
    assert solution.lower <= solution.edits.cost
    assert solve(replace(problem, second_edges=dense)).edits.cost == 0
