from __future__ import annotations

import pytest

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1.script_graph_pb2 import EventEdge, ScriptGraph
from dramaturg_research.training.evaluation import choose_threshold, score
from dramaturg_research.training.scripts import make_script
from services.graph.app import score_edges

CHAIN = make_script("s", ["a", "b", "c"], [(0, 1), (1, 2)])
LOOSE = make_script("s", ["a", "b", "c"], [])


def test_scores_are_those_of_the_graph_service() -> None:
    predicted = [frozenset({(0, 1)}), frozenset({(0, 1), (1, 2)}), frozenset[tuple[int, int]]()]
    scripts = [CHAIN, CHAIN, CHAIN]
    scores = score(scripts, predicted)
    request = pb.ScoreEdgesRequest(
        pairs=[
            pb.GraphPair(id=str(index), predicted=_graph(edges), reference=_graph(script.edges))
            for index, (script, edges) in enumerate(zip(scripts, predicted, strict=True))
        ]
    )
    macro = score_edges(request).summary.macro
    assert (scores.f1, scores.precision, scores.recall) == pytest.approx(
        (macro.f1.value, macro.precision.value, macro.recall.value)
    )
    assert scores.f1 == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert scores.exact_matches == 1


def test_two_graphs_without_edges_are_alike() -> None:
    scores = score([LOOSE], [frozenset()])
    assert (scores.f1, scores.precision, scores.recall, scores.exact_matches) == (1, 1, 1, 1)
    scores = score([LOOSE], [frozenset({(0, 1)})])
    assert (scores.f1, scores.precision, scores.recall, scores.exact_matches) == (0, 0, 0, 0)


def test_nothing_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="no scripts to score"):
        score([], [])


def test_the_threshold_with_the_best_graphs_is_chosen() -> None:
    probabilities = {(0, 1): 0.4, (1, 2): 0.4, (0, 2): 0.45, (2, 1): 0.22}
    threshold, scores = choose_threshold([CHAIN], [probabilities])
    assert scores.f1 == 1
    # 0.35 decodes it as well as anything lower does, and is nearest to one half.
    assert threshold == 0.35


def _graph(edges: frozenset[tuple[int, int]]) -> ScriptGraph:
    return ScriptGraph(edges=[EventEdge(source_id=str(i), target_id=str(j)) for i, j in edges])
