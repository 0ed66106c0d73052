"""EvaluateGraphs over real gRPC, with the real graph service; edge services and authors are functions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.evaluation.v1 import graphs_pb2
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest, GivenGraph, MeasuredGraph
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.generation.v1 import edge_service_pb2
from dramaturg.api.generation.v1.authoring_graphs_pb2 import WriteScriptGraphRequest, WriteScriptGraphResponse
from dramaturg.api.generation.v1.edge_service_pb2 import PredictEdgesRequest, PredictEdgesResponse
from dramaturg.api.graph.v1 import graph_service_pb2
from dramaturg.api.graph.v1.graph_service_pb2 import PairProbability
from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge, ScriptGraph
from dramaturg.service.errors import ServiceError
from tests.support.evaluations import CALL, Method, in_a_thread
from tests.support.graph_evaluations import (
    end_to_end,
    graph_events,
    graphs_gateway,
    graphs_result,
    only_graph,
    predicting,
    serve_graph_service,
    texts_of,
)
from tests.support.graphs import message, random_script
from tests.support.grpc_servers import until

PAIRWISE = edge_service_pb2.EDGE_METHOD_PAIRWISE
GENERATE, PIPELINE = graphs_pb2.GRAPH_TASK_GENERATE, graphs_pb2.GRAPH_TASK_PIPELINE
TEXTS = {"1": "find a pan", "2": "heat oil", "3": "break the eggs", "4": "fry the eggs"}


@pytest.fixture(scope="module")
def graph() -> Iterator[str]:
    with in_a_thread(serve_graph_service) as target:
        yield target


def eggs(edges: str = "1>2 2>4 3>4", texts: dict[str, str] | None = None) -> ScriptGraph:
    made = message(edges, texts or TEXTS, "eggs")
    made.scenario = "fry eggs"
    return made


def asked(**fields: Any) -> EvaluateGraphsRequest:
    return EvaluateGraphsRequest(**{"reference": eggs(), "models": ["m"], **fields})


def _edge(source: str, target: str) -> EventEdge:
    return EventEdge(source_id=source, target_id=target)


def edges_of(graph: ScriptGraph) -> set[tuple[str, str]]:
    return {(edge.source_id, edge.target_id) for edge in graph.edges}


def writing(graph: ScriptGraph, **fields: Any) -> Method:
    async def write(request: WriteScriptGraphRequest) -> WriteScriptGraphResponse:
        return WriteScriptGraphResponse(graph=graph, provenance=CALL, **fields)

    return write


async def refusing(request: Any) -> Any:
    raise ServiceError(grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_UNSPECIFIED, "out of order")


async def hanging(request: Any) -> Any:
    await asyncio.Event().wait()


# What is measured


async def test_the_order_of_events_and_what_it_costs(graph: str) -> None:
    predict = predicting(
        [("find a pan", "heat oil"), ("heat oil", "fry the eggs"), ("find a pan", "fry the eggs")]
    )
    request = asked(models=["a", "b"], tags={"domain": "kitchen"}, request_id="x")
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


async def test_pairs_are_aggregated_and_what_broke_a_cycle_is_told(graph: str) -> None:
    async def circular(request: PredictEdgesRequest) -> PredictEdgesResponse:
        assert request.method == PAIRWISE
        ids = {event.text: event.id for event in request.events}
        order = ["find a pan", "heat oil", "break the eggs", "fry the eggs"]
        chances = [0.9, 0.8, 0.7, 0.6]
        pairs = zip(order, [*order[1:], order[0]], chances, strict=True)
        return PredictEdgesResponse(
            method=PAIRWISE,
            probabilities=[
                PairProbability(source_id=ids[a], target_id=ids[b], probability=chance)
                for a, b, chance in pairs
            ],
        )

    async with graphs_gateway(graph, circular) as target:
        measured = await only_graph(target, asked(method=PAIRWISE))
    assert edges_of(measured.graph) == {("1", "2"), ("2", "3"), ("3", "4")}
    (removed,) = measured.removed
    assert (removed.source_id, removed.target_id) == ("4", "1")
    assert removed.probability == pytest.approx(0.6)
    assert measured.report.acyclic


@pytest.mark.parametrize(
    ("threshold", "edges"),
    [(None, {("1", "2"), ("2", "3")}), (0.8, {("1", "2")}), (7.0, {("1", "2"), ("2", "3")})],
)
async def test_the_threshold_that_the_server_found_out_is_used(
    graph: str, threshold: float | None, edges: set[tuple[str, str]]
) -> None:
    async def sure_and_unsure(request: PredictEdgesRequest) -> PredictEdgesResponse:
        ids = {event.text: event.id for event in request.events}
        chances = {("find a pan", "heat oil"): 0.9, ("heat oil", "break the eggs"): 0.7}
        return PredictEdgesResponse(
            method=PAIRWISE,
            threshold=threshold,
            probabilities=[
                PairProbability(source_id=ids[a], target_id=ids[b], probability=chance)
                for (a, b), chance in chances.items()
            ],
        )

    async with graphs_gateway(graph, sure_and_unsure) as target:
        measured = await only_graph(target, asked(method=PAIRWISE))
    assert edges_of(measured.graph) == edges


async def test_the_cycle_policy_is_the_requests(graph: str) -> None:
    """A heavy edge that closes two light cycles: one removal is least, the paper's rule removes two."""

    async def predict(request: PredictEdgesRequest) -> PredictEdgesResponse:
        ids = {event.text: event.id for event in request.events}
        pairs = [("1", "2", 0.8), ("2", "3", 0.7), ("2", "4", 0.7), ("3", "1", 0.75), ("4", "1", 0.75)]
        return PredictEdgesResponse(
            method=PAIRWISE,
            probabilities=[
                PairProbability(source_id=ids[TEXTS[a]], target_id=ids[TEXTS[b]], probability=chance)
                for a, b, chance in pairs
            ],
        )

    async with graphs_gateway(graph, predict) as target:
        paper = await only_graph(target, asked(method=PAIRWISE))
        least = await only_graph(
            target, asked(method=PAIRWISE, cycle_policy=graph_service_pb2.CYCLE_POLICY_MIN_FAS)
        )
    assert {(one.source_id, one.target_id) for one in paper.removed} == {("2", "3"), ("2", "4")}
    assert {(one.source_id, one.target_id) for one in least.removed} == {("1", "2")}


async def test_a_cyclic_answer_is_measured_as_it_is(graph: str) -> None:
    predict = predicting([*texts_of(eggs()), ("fry the eggs", "find a pan")])
    async with graphs_gateway(graph, predict) as target:
        measured = await only_graph(target, asked(reduce=True))
    assert not measured.abstain_reason
    assert not measured.report.acyclic
    assert measured.report.cycle
    assert (measured.score.counts.predicted, measured.score.counts.shared) == (4, 3)
    assert measured.score.unreduced


async def test_written_graphs_are_compared_by_their_texts(graph: str) -> None:
    written = message("1>2 2>3", {"1": "find a pan", "2": "break the eggs", "3": "fry the eggs"})
    requests: list[WriteScriptGraphRequest] = []

    async def write(request: WriteScriptGraphRequest) -> WriteScriptGraphResponse:
        requests.append(request)
        return WriteScriptGraphResponse(graph=written, dropped=["event 9: it is blank"], provenance=CALL)

    async with graphs_gateway(graph, write=write) as target:
        measured = await only_graph(target, asked(task=GENERATE))
    assert (requests[0].scenario, requests[0].event_count) == ("fry eggs", 4)
    assert measured.graph == written
    assert list(measured.dropped) == ["event 9: it is blank"]
    # Ids "1" to "3" are there on both sides and mean something else.
    assert not measured.HasField("score")
    assert not measured.failures
    distance = measured.distance
    assert distance.proven
    assert distance.label_rule == graph_service_pb2.LABEL_RULE_NORMALISED_TEXT
    assert (distance.edits.inserted_events, distance.edits.deleted_events) == (1, 0)


async def test_written_events_that_are_the_references_are_scored_too(graph: str) -> None:
    async with graphs_gateway(graph, write=writing(eggs())) as target:
        measured = await only_graph(target, asked(task=GENERATE))
    assert measured.score.exact_match
    assert (measured.distance.distance, measured.distance.proven) == (0, True)


async def test_written_events_that_are_some_of_the_references_are_other_events(graph: str) -> None:
    written = eggs("1>2", {"1": TEXTS["1"], "2": TEXTS["2"]})
    async with graphs_gateway(graph, write=writing(written)) as target:
        measured = await only_graph(target, asked(task=GENERATE))
    assert not measured.HasField("score")
    assert measured.distance.edits.inserted_events == 2


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


async def test_a_pipeline_orders_anew_what_was_written(graph: str) -> None:
    written = eggs("4>3 3>2 2>1")
    async with graphs_gateway(graph, predicting(texts_of(eggs())), writing(written)) as target:
        measured = await only_graph(target, asked(task=PIPELINE))
    assert edges_of(measured.graph) == edges_of(eggs())
    assert measured.distance.distance == 0
    assert len(measured.provenances) == 2
    assert [provenance.registered_name for provenance in measured.provenances] == ["fake", "fake"]


async def test_one_written_event_needs_no_order(graph: str) -> None:
    written = ScriptGraph(events=[Event(id="1", text="call a cook")])
    async with graphs_gateway(graph, refusing, writing(written)) as target:
        measured = await only_graph(target, asked(task=PIPELINE))
    assert [event.text for event in measured.graph.events] == ["call a cook"]


async def test_given_graphs_are_measured_and_cost_nothing(graph: str) -> None:
    listed = GivenGraph(model="by hand", graph=eggs("1>2 2>3 3>4"))
    # As published predictions are: edges alone, one of them to an event that there is not.
    bare = GivenGraph(model="published", graph=ScriptGraph(edges=[_edge("1", "7")]))
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


# What the models are shown


async def test_neither_ids_nor_order_of_the_events_reach_the_model(graph: str) -> None:
    shown: list[PredictEdgesRequest] = []

    async def predict(request: PredictEdgesRequest) -> PredictEdgesResponse:
        shown.append(request)
        return end_to_end(request, [])

    renamed = ScriptGraph(
        scenario="fry eggs",
        events=[
            Event(id=f"x{place}", text=event.text) for place, event in enumerate(reversed(eggs().events))
        ],
    )
    renamed.events[0].duration_minutes = 3
    async with graphs_gateway(graph, predict) as target:
        for reference in (eggs(), renamed):
            await only_graph(target, asked(reference=reference, tags={"secret": "sesame"}))
    first, second = shown
    assert list(first.events) == list(second.events)
    assert {event.text for event in first.events} == set(TEXTS.values())
    assert not {event.id for event in first.events} & set(TEXTS)
    assert not first.events[0].HasField("duration_minutes")
    assert "sesame" not in str(first)


async def test_events_of_the_same_text_stay_apart(graph: str) -> None:
    texts = {"1": "wait", "2": "stir", "3": "wait"}

    async def predict(request: PredictEdgesRequest) -> PredictEdgesResponse:
        stir = next(event.id for event in request.events if event.text == "stir")
        first, second = (event.id for event in request.events if event.text == "wait")
        return end_to_end(request, [(first, stir), (stir, second)])

    async with graphs_gateway(graph, predict) as target:
        measured = await only_graph(target, asked(reference=eggs("1>2 2>3", texts)))
    assert edges_of(measured.graph) in ({("1", "2"), ("2", "3")}, {("3", "2"), ("2", "1")})


async def test_models_samples_and_repeats_reach_whoever_asks_the_models(graph: str) -> None:
    orders: list[PredictEdgesRequest] = []
    writes: list[WriteScriptGraphRequest] = []
    perfect = predicting(texts_of(eggs()))

    async def predict(request: PredictEdgesRequest) -> PredictEdgesResponse:
        orders.append(request)
        response: PredictEdgesResponse = await perfect(request)
        return response

    async def write(request: WriteScriptGraphRequest) -> WriteScriptGraphResponse:
        writes.append(request)
        return WriteScriptGraphResponse(graph=eggs())

    options = JudgeOptions(model="fallback", sampling=Sampling(temperature=0.5), repeat_index=2)
    async with graphs_gateway(graph, predict, write) as target:
        await graphs_result(target, asked(task=PIPELINE, models=["a"], options=options))
        await graphs_result(target, asked(task=PIPELINE, models=[], options=options))
        sorter = JudgeSelection(role="edges", model="sorter")
        events = await graph_events(target, asked(task=PIPELINE, models=["a"], judges=[sorter]))
    assert [request.options.model for request in writes] == ["a", "fallback", "a"]
    assert [request.options.model for request in orders] == ["a", "fallback", "sorter"]
    assert (orders[0].options.sampling.temperature, orders[0].options.repeat_index) == (0.5, 2)
    assert [judge.model for judge in events[0].accepted.judges] == ["a", "sorter", ""]


# What goes wrong


async def abstention(graph: str, predict: Method, **fields: Any) -> MeasuredGraph:
    async with graphs_gateway(graph, predict) as target:
        measured = await only_graph(target, asked(**fields))
    assert not measured.HasField("graph")
    assert not measured.HasField("report")
    assert not measured.HasField("score")
    return measured


async def test_a_model_that_fails_abstains_and_touches_no_other(graph: str) -> None:
    perfect = predicting(texts_of(eggs()))

    async def predict(request: PredictEdgesRequest) -> PredictEdgesResponse:
        response: PredictEdgesResponse = await (refusing if request.options.model == "bad" else perfect)(
            request
        )
        return response

    async with graphs_gateway(graph, predict) as target:
        result = await graphs_result(target, asked(models=["bad", "good"]))
    bad, good = result.graphs
    assert bad.abstain_reason == verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE
    assert bad.failures == ["There is no graph: edges 'fake' failed with INTERNAL: out of order."]
    assert good.score.exact_match


async def test_a_model_that_hangs_times_out_before_the_call_does(graph: str) -> None:
    async with graphs_gateway(graph, hanging) as target:
        measured = await only_graph(target, asked(), timeout=1.5)
    assert measured.abstain_reason == verdict_pb2.ABSTAIN_REASON_TIMED_OUT


async def test_an_edge_service_that_is_not_there(graph: str) -> None:
    async with graphs_gateway(graph, write=writing(eggs())) as target:
        with pytest.raises(ServiceError) as refused:
            await graphs_result(target, asked())
    assert refused.value.reason == error_reason_pb2.ERROR_REASON_ROLE_UNBOUND


async def test_an_answer_that_is_an_abstention_keeps_its_reason_and_cost(graph: str) -> None:
    async def abstain(request: PredictEdgesRequest) -> PredictEdgesResponse:
        return PredictEdgesResponse(
            abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED,
            dropped=["it would rather not"],
            provenance=CALL,
        )

    measured = await abstention(graph, abstain)
    assert measured.abstain_reason == verdict_pb2.ABSTAIN_REASON_REFUSED
    assert list(measured.dropped) == ["it would rather not"]
    assert measured.provenances[0].usage.provider_call_count == 1


def answering(response: PredictEdgesResponse) -> Method:
    async def answer(request: PredictEdgesRequest) -> PredictEdgesResponse:
        return response

    return answer


STRANGE = PairProbability(source_id="event-x", target_id="event-y", probability=0.5)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (PredictEdgesResponse(), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        (
            PredictEdgesResponse(graph=ScriptGraph(), abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED),
            verdict_pb2.ABSTAIN_REASON_CONTRADICTORY,
        ),
        (
            PredictEdgesResponse(graph=ScriptGraph(), probabilities=[STRANGE]),
            verdict_pb2.ABSTAIN_REASON_UNPARSABLE,
        ),
        (PredictEdgesResponse(probabilities=[STRANGE]), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        (
            PredictEdgesResponse(graph=ScriptGraph(edges=[_edge("1", "2")])),
            verdict_pb2.ABSTAIN_REASON_UNPARSABLE,
        ),
    ],
    ids=["nothing", "graph and abstention", "graph and pairs", "pairs of strangers", "edges of strangers"],
)
async def test_an_answer_that_breaks_the_contract_abstains(
    graph: str, response: PredictEdgesResponse, reason: int
) -> None:
    measured = await abstention(graph, answering(response))
    assert measured.abstain_reason == reason
    assert measured.failures


async def test_another_method_than_asked_for_is_no_answer(graph: str) -> None:
    async def predict(request: PredictEdgesRequest) -> PredictEdgesResponse:
        return end_to_end(request, [])

    measured = await abstention(graph, predict, method=PAIRWISE)
    assert "another method" in measured.failures[0]


async def test_what_cannot_be_used_of_an_answer_is_left_out_and_told(graph: str) -> None:
    async def predict(request: PredictEdgesRequest) -> PredictEdgesResponse:
        pan, oil = (next(one.id for one in request.events if one.text == TEXTS[key]) for key in "12")
        return PredictEdgesResponse(
            method=PAIRWISE,
            probabilities=[
                PairProbability(source_id=source, target_id=target, probability=chance)
                for source, target, chance in (
                    (pan, oil, 0.9),
                    (pan, oil, 0.1),
                    (oil, oil, 0.9),
                    (oil, pan, float("nan")),
                    (oil, "7", 0.9),
                )
            ],
            dropped=[f"{oil!r} before {pan!r}: the answer is unclear"],
        )

    async with graphs_gateway(graph, predict) as target:
        measured = await only_graph(target, asked())
    assert edges_of(measured.graph) == {("1", "2")}
    assert list(measured.dropped) == [
        "'2' before '1': the answer is unclear",
        "edge from '1' to '2': it stands there twice",
        "edge from '2' to '2': it is one event",
        "edge from '2' to '1': nan is no probability",
        "edge from '2' to '7': there is no such event",
    ]


async def test_a_flood_of_faults_is_counted_not_listed(graph: str) -> None:
    async def predict(request: PredictEdgesRequest) -> PredictEdgesResponse:
        first, second = request.events[0].id, request.events[1].id
        return end_to_end(request, [(first, second), *((first, f"no{n}") for n in range(500))])

    async with graphs_gateway(graph, predict) as target:
        measured = await only_graph(target, asked())
    assert len(measured.graph.edges) == 1
    assert len(measured.dropped) == 101
    assert measured.dropped[-1] == "and 400 more"


@pytest.mark.parametrize(
    "written",
    [
        ScriptGraph(),
        ScriptGraph(events=[Event(id="1", text="a"), Event(id="1", text="b")]),
        ScriptGraph(events=[Event(id=" ", text="a")]),
        ScriptGraph(events=[Event(id="1")], edges=[EventEdge(source_id="1")]),
    ],
    ids=["no events", "one id twice", "a blank id", "half an edge"],
)
async def test_a_written_graph_that_is_none_abstains(graph: str, written: ScriptGraph) -> None:
    async with graphs_gateway(graph, write=writing(written)) as target:
        measured = await only_graph(target, asked(task=GENERATE))
    assert measured.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNPARSABLE
    assert not measured.HasField("graph")
    assert measured.provenances[0].usage.provider_call_count == 1


async def test_more_events_than_can_be_ordered(graph: str) -> None:
    written = ScriptGraph(events=[Event(id=str(n), text=f"do {n}") for n in range(41)])
    async with graphs_gateway(graph, predicting([]), writing(written)) as target:
        piped = await only_graph(target, asked(task=PIPELINE))
        kept = await only_graph(target, asked(task=GENERATE))
    assert piped.abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED
    # Too large for an edit distance; the rest stands.
    assert kept.report.event_count == 41
    assert not kept.HasField("distance")
    assert "ERROR_REASON_TOO_LARGE" in kept.failures[0]


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
            edges=[_edge(str(a), str(b)) for a, b in random_script(40, Random(seed)).edges],
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


async def test_leaving_early_cancels_the_models(graph: str) -> None:
    asking, cancelled = asyncio.Event(), asyncio.Event()

    async def predict(request: PredictEdgesRequest) -> PredictEdgesResponse:
        asking.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async with graphs_gateway(graph, predict) as target:
        work = asyncio.create_task(graph_events(target, asked()))
        await asking.wait()
        work.cancel()
        await until(cancelled.is_set)


# What is refused


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (
            {"reference": ScriptGraph(scenario="x", events=eggs().events, edges=[_edge("1", "9")])},
            "reference.edges[0].target_id",
        ),
        ({"reference": message("1", {"1": "a"})}, "reference.scenario"),
        (
            {"reference": ScriptGraph(scenario="fry eggs", events=[Event(id="1", text="a")])},
            "reference.events",
        ),
        (
            {"reference": ScriptGraph(scenario="x", events=[Event(id=str(n)) for n in range(41)])},
            "reference.events",
        ),
        (
            {"reference": ScriptGraph(scenario="x", events=[Event(id="1"), Event(id="1")])},
            "reference.events[1].id",
        ),
        (
            {"reference": ScriptGraph(scenario="x", events=eggs().events, edges=[EventEdge(source_id="1")])},
            "reference.edges[0].target_id",
        ),
        ({"models": ["a", "a"]}, "models[1]"),
        ({"graphs": [GivenGraph(model="m", graph=eggs())]}, "graphs[0].model"),
        ({"graphs": [GivenGraph(model="x", graph=eggs())] * 2}, "graphs[1].model"),
        (
            {"graphs": [GivenGraph(model="x", graph=ScriptGraph(events=[Event(id="")]))]},
            "graphs[0].graph.events[0].id",
        ),
        ({"judges": [JudgeSelection(role="edges"), JudgeSelection(role="edges", model="b")]}, "judges[1]"),
        ({"judges": [JudgeSelection(role="edges", model="b")]}, "judges[0].model"),
        ({"judges": [JudgeSelection(role="critic")]}, "judges[0].role"),
        ({"task": 9}, "task"),
    ],
)
async def test_a_request_that_cannot_be_carried_out_names_the_field(
    graph: str, fields: dict[str, Any], field: str
) -> None:
    async with graphs_gateway(graph, predicting([])) as target:
        with pytest.raises(ServiceError) as refused:
            await graphs_result(target, asked(**fields))
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert field in [violation.field for violation in refused.value.violations]
