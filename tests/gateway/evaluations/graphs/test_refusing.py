"""Requests that EvaluateGraphs refuses."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from dramaturg.api.evaluation.v1.graphs_pb2 import GivenGraph
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge, ScriptGraph
from dramaturg.service.errors import ServiceError
from tests.support.graph_evaluations import asked, edge, eggs, graphs_gateway, graphs_result, predicting
from tests.support.graphs import message


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (
            {"reference": ScriptGraph(scenario="x", events=eggs().events, edges=[edge("1", "9")])},
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
        (
            {"reference": ScriptGraph(scenario="x", events=eggs().events, edges=[edge("1", "1")])},
            "reference.edges",
        ),
        (
            {
                "graphs": [GivenGraph(model="x", graph=eggs())],
                "reference": eggs("1>2 2>1"),
            },
            "reference.edges",
        ),
        (
            {
                "reference": ScriptGraph(
                    scenario="x", events=[Event(id="1", text="a"), Event(id="2", text=" ")]
                )
            },
            "reference.events[1].text",
        ),
        ({"vote_count": 26}, "vote_count"),
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
