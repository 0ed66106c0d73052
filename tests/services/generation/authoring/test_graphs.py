"""AuthoringService.WriteScriptGraph over real gRPC."""

from __future__ import annotations

from typing import Any

import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.generation.v1 import authoring_graphs_pb2 as pb
from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge, ScriptGraph
from tests.support.generation import generation_service
from tests.support.openai_server import Answer, Body, OpenAIServer


def graph(*edges: tuple[int, int], events: dict[int, str] | None = None) -> Body:
    listed = events or {1: "find the recipe", 2: "mix the dough", 3: "bake it"}
    return {
        "idea": "As usual.",
        "events": [{"number": number, "event": text} for number, text in listed.items()],
        "edges": [{"before": before, "after": after} for before, after in edges],
    }


async def write(answer: Any, event_count: int = 0) -> tuple[pb.WriteScriptGraphResponse, list[Body]]:
    request = pb.WriteScriptGraphRequest(scenario="bake a cake", event_count=event_count)
    async with OpenAIServer(lambda _: answer) as server, generation_service(server) as service:
        response = await service.authoring.WriteScriptGraph(request)
    return response, server.bodies


async def test_a_graph_is_given_as_it_was_answered() -> None:
    response, [body] = await write(graph((1, 2), (2, 3), (3, 1)), event_count=3)
    assert response.graph == ScriptGraph(
        scenario="bake a cake",
        events=[
            Event(id="1", text="find the recipe"),
            Event(id="2", text="mix the dough"),
            Event(id="3", text="bake it"),
        ],
        edges=[
            EventEdge(source_id="1", target_id="2"),
            EventEdge(source_id="2", target_id="3"),
            EventEdge(source_id="3", target_id="1"),
        ],
    )
    assert not response.dropped
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    shown = body["messages"][-1]["content"]
    assert "]\nbake a cake\n[END scenario " in shown
    assert shown.endswith("Number of events, the first and the last included: 3.")
    assert [prompt.name for prompt in response.provenance.prompts] == ["write_script_graph"]


async def test_the_form_of_the_paper_is_read_after_the_second_request() -> None:
    answer = "Step0: find the recipe;\nStep1: bake it;\nStep0 --> Step1;\nDo not add Step1 --> Step0."
    response, bodies = await write(answer)
    assert [event.text for event in response.graph.events] == ["find the recipe", "bake it"]
    assert [(edge.source_id, edge.target_id) for edge in response.graph.edges] == [("0", "1")]
    assert any("Step1 --> Step0" in one for one in response.dropped)
    assert len(bodies) == 2


async def test_the_first_event_is_the_request_s() -> None:
    request = pb.WriteScriptGraphRequest(scenario="bake a cake", first_event="guests come tomorrow")
    async with OpenAIServer(lambda _: graph((1, 2))) as server, generation_service(server) as service:
        await service.authoring.WriteScriptGraph(request)
        await service.authoring.WriteScriptGraph(pb.WriteScriptGraphRequest(scenario="bake a cake"))
    given, default = (body["messages"][-1]["content"] for body in server.bodies)
    assert "]\nguests come tomorrow\n[END first event " in given
    assert 'First event:\nthat somebody decided to do the scenario ("decided to ...")\n' in default


async def test_without_a_count_it_takes_as_many_events_as_it_takes() -> None:
    _, [body] = await write(graph())
    assert "included: as many as it takes." in body["messages"][-1]["content"]


async def test_what_cannot_be_used_is_left_out_and_said() -> None:
    response, _ = await write(
        graph((1, 2), (1, 2), (2, 2), (2, 9), (7, 1), events={1: "mix", 2: "bake", 7: " "})
    )
    assert [(edge.source_id, edge.target_id) for edge in response.graph.edges] == [("1", "2")]
    assert [event.id for event in response.graph.events] == ["1", "2"]
    assert list(response.dropped) == [
        "event 7: it has no number, is blank, or has over 20000 characters",
        "edge from event '1' to event '2': it is repeated",
        "edge from event '2' to event '2': an event does not come before itself",
        "edge from event '2' to event number 9: there is no event number 9",
        "edge from event number 7 to event '1': there is no event number 7",
    ]


async def test_two_events_of_one_number_keep_the_first() -> None:
    answer = graph((1, 2))
    answer["events"].append({"number": 2, "event": "eat"})
    response, _ = await write(answer)
    assert [event.text for event in response.graph.events] == ["find the recipe", "mix the dough", "bake it"]
    assert list(response.dropped) == ["event 2, 'eat': another event has this number"]


@pytest.mark.parametrize(
    ("answer", "reason", "calls"),
    [
        (Answer("", refusal="No."), verdict_pb2.ABSTAIN_REASON_REFUSED, 1),
        (Answer('{"idea"', finish_reason="length"), verdict_pb2.ABSTAIN_REASON_TRUNCATED, 2),
        (Answer(""), verdict_pb2.ABSTAIN_REASON_EMPTY, 2),
        ("step by step", verdict_pb2.ABSTAIN_REASON_UNPARSABLE, 2),
        (graph(events={1: " "}), verdict_pb2.ABSTAIN_REASON_UNPARSABLE, 1),
    ],
)
async def test_without_a_graph_it_abstains(answer: Any, reason: Any, calls: int) -> None:
    response, bodies = await write(answer)
    assert (response.abstain_reason, response.HasField("graph")) == (reason, False)
    assert len(bodies) == len(response.provenance.completions) == calls
