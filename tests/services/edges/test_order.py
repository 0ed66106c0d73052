from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1.script_graph_pb2 import Event
from services.edges.order import CycleError, closure, decode, reduction
from services.graph.codec.choices import aggregate_pairs, decode_pairs

SIZE = 6
probabilities = st.dictionaries(
    st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)).filter(lambda edge: edge[0] != edge[1]),
    # Few values, so that ties are common.
    st.integers(0, 20).map(lambda value: value / 20),
)


def test_a_shortcut_is_no_edge_of_the_reduction() -> None:
    after = closure([(0, 1), (1, 2), (0, 2)], 3)
    assert after == (0b110, 0b100, 0)
    assert reduction(after) == {(0, 1), (1, 2)}


@pytest.mark.parametrize("edges", [[(0, 0)], [(0, 1), (1, 0)], [(0, 1), (1, 2), (2, 0)]])
def test_a_cycle_is_no_order(edges: list[tuple[int, int]]) -> None:
    with pytest.raises(CycleError):
        closure(edges, 3)


@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda edge: edge[0] < edge[1])))
def test_closure_and_reduction_are_those_of_networkx(edges: set[tuple[int, int]]) -> None:
    graph: nx.DiGraph[int] = nx.DiGraph(edges)
    after = closure(edges, 7)
    found = {(i, j) for i in range(7) for j in range(7) if after[i] >> j & 1}
    assert found == set(nx.transitive_closure(graph).edges)
    assert reduction(after) == set(nx.transitive_reduction(graph).edges)


@given(probabilities, st.sampled_from([0.0, 0.25, 0.5, 0.9]))
def test_decodes_as_the_graph_service_aggregates(
    weights: dict[tuple[int, int], float], threshold: float
) -> None:
    request = pb.AggregatePairsRequest(
        events=[Event(id=str(index)) for index in range(SIZE)],
        pairs=[
            pb.PairProbability(source_id=str(i), target_id=str(j), probability=weight)
            for (i, j), weight in weights.items()
        ],
        threshold=threshold,
    )
    graph = aggregate_pairs(decode_pairs(request), None, request).graph
    served = {(int(edge.source_id), int(edge.target_id)) for edge in graph.edges}
    assert decode(weights, SIZE, threshold) == served


def test_the_least_certain_edge_of_a_cycle_goes() -> None:
    weights = {(0, 1): 0.9, (1, 2): 0.8, (2, 0): 0.6, (3, 0): 0.55}
    assert decode(weights, 4, 0.5) == {(0, 1), (1, 2), (3, 0)}
