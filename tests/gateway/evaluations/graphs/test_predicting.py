"""EvaluateGraphs and whoever predicts edges: what they are shown, and what is made of their answers."""

from __future__ import annotations

import pytest

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.generation.v1.authoring_graphs_pb2 import WriteScriptGraphRequest, WriteScriptGraphResponse
from dramaturg.api.generation.v1.edge_service_pb2 import PredictEdgesRequest, PredictEdgesResponse
from dramaturg.api.graph.v1 import graph_service_pb2
from dramaturg.api.graph.v1.graph_service_pb2 import PairProbability
from dramaturg.api.graph.v1.script_graph_pb2 import Event, ScriptGraph
from tests.support.graph_evaluations import (
    PAIRWISE,
    PIPELINE,
    TEXTS,
    asked,
    edges_of,
    eggs,
    end_to_end,
    graph_events,
    graphs_gateway,
    graphs_result,
    only_graph,
    predicting,
    texts_of,
)


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


async def test_the_number_of_votes_is_the_requests(graph: str) -> None:
    counts = []

    async def counting(request: PredictEdgesRequest) -> PredictEdgesResponse:
        counts.append(request.vote_count)
        return PredictEdgesResponse(method=PAIRWISE)

    async with graphs_gateway(graph, counting) as target:
        await only_graph(target, asked(method=PAIRWISE, vote_count=5))
    assert counts == [5]


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
        "edge from '1' to '2': it is repeated",
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
