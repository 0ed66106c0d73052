"""What EvaluateGraphs measures: over real gRPC, with the real graph service."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1 import graphs_pb2
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest, GivenGraph
from dramaturg.api.generation.v1 import edge_service_pb2
from dramaturg.api.graph.v1 import graph_service_pb2
from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge, ScriptGraph
from tests.support.graph_evaluations import (
    GENERATE,
    PAIRWISE,
    asked,
    edge,
    edges_of,
    eggs,
    graph_events,
    graphs_gateway,
    graphs_result,
    only_graph,
    predicting,
    texts_of,
)
from tests.support.graphs import random_script


async def test_the_order_of_events_and_what_it_costs(graph: str) -> None:
    predict = predicting(
        [("find a pan", "heat oil"), ("heat oil", "fry the eggs"), ("find a pan", "fry the eggs")]
    )
    request = asked(models=["a", "b"], tags={"domain": "kitchen"})
    async with graphs_gateway(graph, predict) as target:
        events = await graph_events(target, request)
    assert [event.WhichOneof("event") for event in events] == ["accepted", "graph", "graph", "result"]
    assert [(judge.role, judge.judge) for judge in events[0].accepted.judges] == [
        ("edges", "fake"),
        ("graph", "built-in"),
    ]
    assert events[0].accepted.assessment_count == 2
    result = events[-1].result
    assert result.reference == eggs()
    assert dict(result.tags) == {"domain": "kitchen"}
    assert result.task == graphs_pb2.GRAPH_TASK_PREDICT_EDGES
    assert [one.model for one in result.graphs] == ["a", "b"]
    assert result.usage.provider_call_count == 2
    one = result.graphs[0]
    assert edges_of(one.graph) == {("1", "2"), ("2", "4"), ("1", "4")}
    assert list(one.graph.events) == list(eggs().events)
    assert (one.score.counts.predicted, one.score.counts.reference, one.score.counts.shared) == (3, 3, 2)
    assert one.score.id == "eggs"
    assert dict(one.score.tags) == {"domain": "kitchen"}
    assert [(edge.source_id, edge.target_id) for edge in one.report.shortcut_edges] == [("1", "4")]
    assert list(one.report.isolated_ids) == ["3"]
    assert not one.HasField("distance")
    assert not one.failures
    assert [provenance.registered_name for provenance in one.provenances] == ["fake"]


async def test_reduced_graphs_and_a_distance_that_is_asked_for(graph: str) -> None:
    predict = predicting([*texts_of(eggs()), ("find a pan", "fry the eggs")])
    mode = graph_service_pb2.DISTANCE_MODE_ANCHORED
    async with graphs_gateway(graph, predict) as target:
        plain = await only_graph(target, asked(distance_mode=mode))
        reduced = await only_graph(target, asked(distance_mode=mode, reduce=True))
    assert (plain.score.exact_match, plain.distance.distance, plain.distance.mode) == (False, 1, mode)
    assert plain.distance.proven
    assert (reduced.score.exact_match, reduced.distance.distance) == (True, 0)


async def test_a_cyclic_answer_is_measured_as_it_is(graph: str) -> None:
    predict = predicting([*texts_of(eggs()), ("fry the eggs", "find a pan")])
    async with graphs_gateway(graph, predict) as target:
        measured = await only_graph(target, asked(reduce=True))
    assert not measured.abstain_reason
    assert not measured.report.acyclic
    assert measured.report.cycle
    assert (measured.score.counts.predicted, measured.score.counts.shared) == (4, 3)
    assert measured.score.unreduced


async def test_events_of_one_text_are_told_apart_by_their_ids(graph: str) -> None:
    texts = {"1": "wait", "2": "stir", "3": "wait"}
    request = asked(
        reference=eggs("1>2 2>3", texts),
        models=[],
        graphs=[GivenGraph(model="mirrored", graph=eggs("3>2 2>1", texts))],
        distance_mode=graph_service_pb2.DISTANCE_MODE_ANCHORED,
    )
    async with graphs_gateway(graph) as target:
        measured = await only_graph(target, request)
    # By their texts the two would be one graph.
    assert (measured.score.counts.shared, measured.distance.distance) == (0, 4)


async def test_given_graphs_are_measured_and_cost_nothing(graph: str) -> None:
    listed = GivenGraph(model="by hand", graph=eggs("1>2 2>3 3>4"))
    # As published predictions are: edges alone, one of them to an event that there is not.
    bare = GivenGraph(model="published", graph=ScriptGraph(edges=[edge("1", "7")]))
    other = GivenGraph(model="stranger", graph=eggs("1>2", {"1": "find a pan", "2": "whistle"}))
    async with graphs_gateway(graph) as target:
        result = await graphs_result(target, asked(models=[], graphs=[listed, bare, other]))
    assert [one.model for one in result.graphs] == ["by hand", "published", "stranger"]
    first, second, third = result.graphs
    assert (first.score.counts.predicted, first.score.counts.shared) == (3, 2)
    assert (second.score.counts.predicted, second.score.counts.shared) == (1, 0)
    assert list(second.report.undeclared_ids) == ["1", "7"]
    assert not third.HasField("score")
    assert third.failures == ["The edges are not scored: event '2' has another text than the reference's."]
    assert result.usage.provider_call_count == 0
    assert not any(one.provenances for one in result.graphs)


@st.composite
def references(draw: st.DrawFn) -> ScriptGraph:
    size = draw(st.integers(2, 9))
    script = random_script(size, Random(draw(st.integers(0, 999))))
    names = draw(st.permutations(range(size)))
    return ScriptGraph(
        scenario=draw(st.sampled_from(["bake a cake", "烤蛋糕"])),
        events=[Event(id=f"step{name}", text=f"do {event}") for event, name in enumerate(names)],
        edges=[EventEdge(source_id=f"step{names[a]}", target_id=f"step{names[b]}") for a, b in script.edges],
    )


@pytest.mark.parametrize("method", [edge_service_pb2.EDGE_METHOD_END_TO_END, PAIRWISE])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reference=references())
async def test_a_perfect_predictor_is_perfect_whatever_the_script(
    graph: str, method: Any, reference: ScriptGraph
) -> None:
    request = EvaluateGraphsRequest(
        reference=reference,
        models=["a", "b"],
        method=method,
        distance_mode=graph_service_pb2.DISTANCE_MODE_PROSCRIPT,
    )
    async with graphs_gateway(graph, predicting(texts_of(reference))) as target:
        result = await graphs_result(target, request)
    for one in result.graphs:
        assert one.score.measures.f1 == 1
        assert one.score.exact_match
        assert (one.distance.distance, one.distance.proven) == (0, True)


async def test_a_measure_that_fails_is_named() -> None:
    async with graphs_gateway("127.0.0.1:1", predicting(texts_of(eggs())), judge_timeout_seconds=5) as target:
        end_to_end_graph = await only_graph(target, asked())
        pairwise = await only_graph(target, asked(method=PAIRWISE))
    assert end_to_end_graph.HasField("graph")
    checked, scored = end_to_end_graph.failures
    assert checked.startswith("The graph is not checked: graph 'built-in' failed with UNAVAILABLE")
    assert scored.startswith("The edges are not scored: graph 'built-in' failed with UNAVAILABLE")
    # Without aggregation there are no edges, only probabilities.
    assert pairwise.abstain_reason == verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE
    assert len(pairwise.provenances) == 1


async def test_a_distance_is_bounded_by_the_deadline(graph: str) -> None:
    """Two shapes of forty events are beyond a search of two seconds; what was found until then is told."""
    first, second = (
        ScriptGraph(
            events=[Event(id=str(n), text=f"{seed}.{n}") for n in range(40)],
            edges=[edge(str(a), str(b)) for a, b in random_script(40, Random(seed)).edges],
        )
        for seed in (1, 2)
    )
    request = EvaluateGraphsRequest(
        reference=first,
        graphs=[GivenGraph(model="x", graph=second)],
        task=GENERATE,
        distance_mode=graph_service_pb2.DISTANCE_MODE_LABEL_FREE,
    )
    async with graphs_gateway(graph) as target:
        distance = (await only_graph(target, request, timeout=3)).distance
    assert not distance.proven
    assert 0 < distance.lower_bound < distance.upper_bound
