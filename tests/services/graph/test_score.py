"""Scores of edges, selection by agreement, random baselines."""

from __future__ import annotations

import statistics
from itertools import permutations
from random import Random

import networkx as nx
import pytest
from hypothesis import given

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from services.graph.model import Order, ScriptGraph, check
from services.graph.score import (
    Choices,
    NoSingleEndError,
    count_edges,
    draw,
    expected_f1,
    group,
    majority,
    measure,
    score_pair,
    summarise,
)
from tests.support.graphs import graph, graphs
from tests.support.recounts import student


def score(predicted: str, reference: str, choices: Choices | None = None) -> pb.EdgeScore:
    return score_pair("", graph(predicted), graph(reference), choices or Choices())


@given(graphs())
def test_a_graph_agrees_with_itself(made: ScriptGraph) -> None:
    scored = score_pair("", made, made, Choices(closure=True))
    assert scored.exact_match
    measures = measure(scored.counts, Choices())
    assert measures is not None
    assert (measures.precision, measures.recall, measures.f1, measures.iou) == (1, 1, 1, 1)
    assert measures.edge_difference == 0
    assert scored.HasField("closure_counts")
    assert scored.closure_counts.predicted == scored.closure_counts.shared


@given(graphs(), graphs())
def test_exchanging_the_sides_exchanges_precision_and_recall(one: ScriptGraph, other: ScriptGraph) -> None:
    there = measure(score_pair("", one, other, Choices()).counts, Choices())
    back = measure(score_pair("", other, one, Choices()).counts, Choices())
    assert there is not None
    assert back is not None
    assert (there.precision, there.recall, there.f1) == (back.recall, back.precision, back.f1)
    assert there.edge_difference == len(set(one.edges) ^ set(other.edges))


@given(graphs(acyclic=True))
def test_reduction_makes_shortcuts_count_for_nothing(made: ScriptGraph) -> None:
    reduced = Order(made).reduction()
    assert score_pair("", made, reduced, Choices(reduce=True)).exact_match
    scored = score_pair("", made, reduced, Choices(closure=True))
    assert scored.HasField("closure_counts")
    closed = scored.closure_counts
    assert closed.predicted == closed.reference == closed.shared


def test_closures_compare_what_comes_before_what() -> None:
    scored = score("a>b b>c", "c>b b>d a>b", Choices(closure=True))
    # a<b a<c b<c against c<b c<d b<d a<b a<d: only a<b is in both.
    assert scored.HasField("closure_counts")
    assert (
        scored.closure_counts.predicted,
        scored.closure_counts.reference,
        scored.closure_counts.shared,
    ) == (3, 5, 1)


def test_the_printed_orientation_exchanges_precision_and_recall() -> None:
    counts = score("a>b", "a>b b>c").counts
    usual, printed = (
        measure(counts, Choices()),
        measure(counts, Choices(orientation=pb.ORIENTATION_AS_PRINTED)),
    )
    assert usual is not None
    assert printed is not None
    assert (usual.precision, usual.recall) == (1.0, 0.5)
    assert (printed.precision, printed.recall) == (0.5, 1.0)
    assert usual.f1 == printed.f1


@pytest.mark.parametrize(
    ("rule", "f1", "excluded"),
    [(pb.EMPTY_RULE_PERFECT, 0.5, 0), (pb.EMPTY_RULE_ZERO, 0.0, 0), (pb.EMPTY_RULE_EXCLUDE, 0.0, 1)],
)
def test_no_edges_on_both_sides_count_as_the_rule_says(
    rule: pb.EmptyRule.ValueType, f1: float, excluded: int
) -> None:
    summary = summarise([score("a b", "a b"), score("a", "a>b")], Choices(empty_rule=rule))
    assert (summary.macro.f1.value, summary.excluded_count, summary.exact_match_count) == (f1, excluded, 1)


def test_there_are_no_means_over_nothing() -> None:
    assert not summarise([], Choices()).HasField("macro")
    assert not summarise([score("a", "a")], Choices(empty_rule=pb.EMPTY_RULE_EXCLUDE)).HasField("macro")


def test_micro_pools_the_edges() -> None:
    summary = summarise([score("a>b", "a>b"), score("a>b b>c c>d", "b>a c>b c>d")], Choices())
    assert summary.HasField("micro")
    assert summary.macro.f1.value == pytest.approx((1 + 1 / 3) / 2)
    assert summary.micro.f1 == pytest.approx(2 / 4)
    assert (summary.macro.edge_difference.value, summary.micro.edge_difference) == (2.0, 4.0)


def test_intervals_of_means_are_clustered_by_a_tag() -> None:
    made = [("a>b", "1"), ("b>c", "1"), ("a>b b>c", "2"), ("a>b b>a", "3"), ("c>a", "4")]
    scores = [
        score_pair("", graph(predicted), graph("a>b b>c"), Choices(), {"script": script})
        for predicted, script in made
    ]
    f1 = [2 / 3, 2 / 3, 1, 1 / 2, 0]
    mean = statistics.fmean(f1)
    free = summarise(scores, Choices()).macro.f1
    assert (free.count, free.value, free.lower, free.upper) == pytest.approx(
        (5, mean, *(student(f1, 0, 1) or ()))
    )
    clustered = summarise(scores, Choices(cluster_tag="script")).macro
    ends = student(f1, 0, 1, [script for _, script in made])
    found = clustered.f1
    assert (found.count, found.value, found.lower, found.upper) == pytest.approx((5, mean, *(ends or ())))
    assert found.upper != pytest.approx(free.upper, abs=1e-3)
    assert clustered.extra_edges.value == statistics.fmean([0, 0, 0, 1, 1])
    assert clustered.extra_edges.lower > 0
    assert clustered.extra_edges.upper > 1


def test_a_cycle_cannot_be_reduced_and_is_counted() -> None:
    scored = score("a>b b>a", "a>b", Choices(reduce=True))
    assert scored.unreduced
    assert summarise([scored], Choices(reduce=True)).unreduced_count == 1


def test_groups_are_in_the_order_of_numbers_and_hold_the_untagged() -> None:
    scores = [
        pb.EdgeScore(degree=degree, depth=1, tags={"t": str(degree)} if tag else {})
        for degree, tag in [(10, True), (2, True), (2, False)]
    ]
    assert list(group(scores, "degree")) == ["2", "10"]
    assert list(group(scores, "t")) == ["2", "10", ""]


def test_a_majority_is_more_than_half() -> None:
    better, equal, worse = pb.PREFERENCE_BETTER, pb.PREFERENCE_EQUAL, pb.PREFERENCE_WORSE
    assert majority([better, better, worse], split=equal) == better
    assert majority([better, worse], split=pb.PREFERENCE_UNDECIDED) == pb.PREFERENCE_UNDECIDED
    assert majority([better, better, equal, worse], split=equal) == equal
    assert majority([], split=equal) == pb.PREFERENCE_UNDECIDED


KINDS = (pb.BASELINE_KIND_PERMUTE_MIDDLE, pb.BASELINE_KIND_RANDOM_DAG, pb.BASELINE_KIND_RANDOM_CHAIN)
SCRIPT = "r>a r>b a>c b>c c>d d>s r>e e>s"


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_graphs_keep_source_and_sink(kind: pb.BaselineKind.ValueType) -> None:
    reference = graph(SCRIPT)
    for seed in range(50):
        drawn = draw(reference, kind, Random(seed), 0.7)
        report = check(drawn)
        assert (list(report.source_ids), list(report.sink_ids)) == (["r"], ["s"])
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
        draw(graph("a>c b>c"), pb.BASELINE_KIND_PERMUTE_MIDDLE, Random(0), 0.7)
