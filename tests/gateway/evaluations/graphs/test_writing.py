"""EvaluateGraphs of graphs that models write."""

from __future__ import annotations

import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.generation.v1.authoring_graphs_pb2 import WriteScriptGraphRequest, WriteScriptGraphResponse
from dramaturg.api.graph.v1 import graph_service_pb2
from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge, ScriptGraph
from tests.support.evaluations import CALL
from tests.support.graph_evaluations import (
    GENERATE,
    PIPELINE,
    TEXTS,
    asked,
    edges_of,
    eggs,
    graphs_gateway,
    only_graph,
    predicting,
    refusing,
    texts_of,
    writing,
)
from tests.support.graphs import message


@pytest.mark.parametrize(("edges", "first"), [("1>2 1>3 2>4 3>4", "find a pan"), ("1>2 2>4 3>4", "")])
async def test_the_model_is_told_the_first_event_of_the_reference(graph: str, edges: str, first: str) -> None:
    requests: list[WriteScriptGraphRequest] = []

    async def write(request: WriteScriptGraphRequest) -> WriteScriptGraphResponse:
        requests.append(request)
        return WriteScriptGraphResponse(graph=message("1>2", {"1": "find", "2": "fry"}), provenance=CALL)

    async with graphs_gateway(graph, write=write) as target:
        await only_graph(target, asked(task=GENERATE, reference=eggs(edges)))
    assert [request.first_event for request in requests] == [first]


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
