"""EdgeService.PredictEdges in one answer, over real gRPC."""

from __future__ import annotations

import random
import re
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.generation.v1 import edge_service_pb2 as pb
from dramaturg.api.graph.v1.script_graph_pb2 import Event, ScriptGraph
from dramaturg.api.identity.v1 import identity_service_pb2, identity_service_pb2_grpc
from dramaturg.service.errors import from_rpc_error
from services.generation.app import App
from tests.services.generation.edges.conftest import EVENTS, predict, shown
from tests.support.generation import generation_service, generation_settings
from tests.support.judges import serve_app
from tests.support.openai_server import Answer, Body, OpenAIServer

RECIPE, DOUGH, CAKE = "find the recipe", "mix the dough", "bake it"


def numbers(body: Body) -> dict[str, int]:
    """The numbers under which the events are shown, by text."""
    return {
        text: int(number) for number, text in re.findall(r"^Event (\d+): (.*)$", shown(body), re.MULTILINE)
    }


def edges(body: Body, *pairs: tuple[str | int, str | int]) -> Body:
    """An answer with edges between events named by text, or by number where there is none."""
    known = numbers(body)
    listed = [{"before": known.get(str(one), one), "after": known.get(str(two), two)} for one, two in pairs]
    return {"reasoning": "First things first.", "edges": listed}


def said(response: pb.PredictEdgesResponse) -> list[tuple[str, str]]:
    return [(edge.source_id, edge.target_id) for edge in response.graph.edges]


@pytest.mark.parametrize("method", [pb.EDGE_METHOD_UNSPECIFIED, pb.EDGE_METHOD_END_TO_END])
async def test_all_edges_in_one_call(method: Any) -> None:
    response, [body] = await predict(
        lambda body: edges(body, (RECIPE, DOUGH), (DOUGH, CAKE), (CAKE, RECIPE)), method=method
    )
    assert said(response) == [("first", "middle"), ("middle", "last"), ("last", "first")]
    assert list(response.graph.events) == EVENTS
    assert response.graph.scenario == "bake a cake"
    assert (response.method, response.probability_source) == (pb.EDGE_METHOD_END_TO_END, "")
    assert not response.dropped
    assert not response.probabilities
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    assert sorted(numbers(body).values()) == [1, 2, 3]
    assert "]\nbake a cake\n[END scenario " in shown(body)
    assert body["temperature"] == 0
    provenance = response.provenance
    assert (provenance.name, provenance.contract) == (
        "llm-edges",
        "dramaturg.api.generation.v1.EdgeService",
    )
    assert [prompt.name for prompt in provenance.prompts] == ["predict_edges"]
    assert provenance.usage.provider_call_count == len(provenance.completions) == 1


async def test_neither_ids_nor_their_order_reach_the_model() -> None:
    async with (
        OpenAIServer(lambda body: edges(body, (RECIPE, CAKE))) as server,
        generation_service(server) as service,
    ):
        for seed in range(4):
            events = [Event(id=f"{seed}-{index}", text=event.text) for index, event in enumerate(EVENTS)]
            random.Random(seed).shuffle(events)
            response = await service.edges.PredictEdges(
                pb.PredictEdgesRequest(scenario="bake a cake", events=events)
            )
            ids = {event.text: event.id for event in events}
            assert said(response) == [(ids[RECIPE], ids[CAKE])]
    [body] = server.bodies
    assert "0-0" not in shown(body)


async def test_what_cannot_be_used_is_left_out_and_said() -> None:
    response, _ = await predict(
        lambda body: edges(body, (RECIPE, DOUGH), (RECIPE, DOUGH), (DOUGH, DOUGH), (CAKE, 9), (0, CAKE))
    )
    assert said(response) == [("first", "middle")]
    assert list(response.dropped) == [
        "edge from event 'first' to event 'middle': it is repeated",
        "edge from event 'middle' to event 'middle': an event does not come before itself",
        "edge from event 'last' to event number 9: there is no event number 9",
        "edge from event number 0 to event 'last': there is no event number 0",
    ]


@pytest.mark.parametrize(
    "answer",
    [
        "find the recipe -> mix the dough;\nmix the dough -> bake it;",
        (
            '```dot\ndigraph { a [label="find the recipe"]; b [label="mix the dough"]; c [label="bake it"]; '
            "a -> b -> c }\n```"
        ),
        '{"edges": [["find the recipe", "mix the dough"], ["mix the dough", "bake it"]]}',
    ],
)
async def test_an_answer_of_another_notation_is_read_after_the_second_request(answer: str) -> None:
    response, bodies = await predict(lambda _: answer)
    assert [(edge.source_id, edge.target_id) for edge in response.graph.edges] == [
        ("first", "middle"),
        ("middle", "last"),
    ]
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    assert len(bodies) == 2


async def test_no_edges_at_all_are_an_answer() -> None:
    response, _ = await predict(lambda body: edges(body))
    assert response.graph == ScriptGraph(scenario="bake a cake", events=EVENTS)


@pytest.mark.parametrize(
    ("answer", "reason", "calls"),
    [
        (Answer("", refusal="No."), verdict_pb2.ABSTAIN_REASON_REFUSED, 1),
        (Answer("I'm unable to assist with this request."), verdict_pb2.ABSTAIN_REASON_REFUSED, 2),
        (Answer("{", finish_reason="length"), verdict_pb2.ABSTAIN_REASON_TRUNCATED, 2),
        (Answer(""), verdict_pb2.ABSTAIN_REASON_EMPTY, 2),
        ("They follow each other.", verdict_pb2.ABSTAIN_REASON_UNPARSABLE, 2),
        ({"reasoning": "", "edges": [{"before": 8, "after": 9}]}, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, 1),
        (Answer("full", status=400), verdict_pb2.ABSTAIN_REASON_CALL_REJECTED, 1),
    ],
)
async def test_without_edges_it_abstains(answer: Any, reason: Any, calls: int) -> None:
    response, bodies = await predict(lambda _: answer)
    assert (response.abstain_reason, response.HasField("graph")) == (reason, False)
    assert len(response.dropped) == 1
    assert len(bodies) == calls


async def test_a_model_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await predict(lambda _: Answer("no such model", status=404, error_code="model_not_found"))
    assert from_rpc_error(caught.value).reason_name == "ERROR_REASON_MODEL_UNKNOWN"


@pytest.mark.parametrize(
    ("events", "paths"),
    [
        ([Event(id="a"), Event(id="b"), Event(id="a")], ["events[2].id"]),
        ([Event(id="a"), Event(text="x")], ["events[1].id"]),
        ([Event(id="a" * 201), Event(id="b", text="x" * 20_001)], ["events[0].id", "events[1].text"]),
    ],
)
async def test_events_that_cannot_be_told_apart_are_refused(events: list[Event], paths: list[str]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await predict(lambda _: "", events=events)
    assert [violation.field for violation in from_rpc_error(caught.value).violations] == paths


async def test_events_of_equal_words_keep_their_ids() -> None:
    events = [Event(id="a", text="wait"), Event(id="b", text="wait")]
    response, _ = await predict(
        lambda _: {"reasoning": "", "edges": [{"before": 1, "after": 2}]}, events=events
    )
    assert said(response) == [("a", "b")]


async def test_the_service_says_who_it_is() -> None:
    app = App(generation_settings())
    async with serve_app(app) as channel:
        stub = identity_service_pb2_grpc.IdentityServiceStub(channel)
        request = identity_service_pb2.GetIdentityRequest(contract="dramaturg.api.generation.v1.EdgeService")
        identity = (await stub.GetIdentity(request)).identity
    assert (identity.name, list(identity.capabilities)) == ("llm-edges", ["calls-models"])
