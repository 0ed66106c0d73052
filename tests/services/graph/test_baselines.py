"""FeedbackArcSet cycles, and random graphs."""

from __future__ import annotations

from itertools import permutations
from random import Random

import networkx as nx
import pytest

from services.graph.baselines import Baseline, NoSingleEndError, draw, expected_f1
from services.graph.check import check
from services.graph.score import Choices, count_edges, measure
from tests.support.graphs import graph

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
