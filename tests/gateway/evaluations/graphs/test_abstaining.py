"""EvaluateGraphs where no graph comes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.evaluation.v1.graphs_pb2 import MeasuredGraph
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.generation.v1.authoring_graphs_pb2 import WriteScriptGraphRequest, WriteScriptGraphResponse
from dramaturg.api.generation.v1.edge_service_pb2 import PredictEdgesRequest, PredictEdgesResponse
from dramaturg.api.graph.v1.graph_service_pb2 import DISTANCE_MODE_STRUCTURAL, PairProbability
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.results.rows import flatten
from dramaturg.service.errors import ServiceError
from dramaturg.testing import until
from tests.support.evaluations import CALL, Method
from tests.support.graph_evaluations import (
    GENERATE,
    PAIRWISE,
    asked,
    edge,
    eggs,
    end_to_end,
    graph_events,
    graphs_gateway,
    graphs_result,
    only_graph,
    predicting,
    refusing,
    texts_of,
    writing,
)


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


async def hanging(request: Any) -> Any:
    await asyncio.Event().wait()


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

    measured = await abstention(graph, abstain, unusable_outputs_abstain=True)
    assert not measured.failure_reason
    assert measured.abstain_reason == verdict_pb2.ABSTAIN_REASON_REFUSED
    assert list(measured.dropped) == ["it would rather not"]
    assert measured.provenances[0].usage.provider_call_count == 1


async def test_a_refusal_is_measured_as_the_events_without_an_order(graph: str) -> None:
    refusal = PredictEdgesResponse(abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED, provenance=CALL)
    request = asked(distance_mode=DISTANCE_MODE_STRUCTURAL)
    async with graphs_gateway(graph, answering(refusal)) as target:
        result = await graphs_result(target, request)
        unordered = await only_graph(target, asked(reference=eggs(edges="")))
    (measured,) = result.graphs
    assert (measured.abstain_reason, measured.failure_reason) == (0, verdict_pb2.ABSTAIN_REASON_REFUSED)
    assert not measured.HasField("graph")
    assert not measured.HasField("report")
    assert measured.score.measures.f1 == 0
    assert measured.score.counts.reference == measured.distance.distance == 3
    rows = {row.measure: row for row in flatten(RunSample(graphs=result))}
    assert (rows["f1"].value, rows["exact_match"].value, rows["edit_distance"].value) == (0, 0, 3)
    assert {row.failure_reason for row in rows.values()} == {verdict_pb2.ABSTAIN_REASON_REFUSED}
    # Events without an order would be right.
    assert unordered.abstain_reason == verdict_pb2.ABSTAIN_REASON_REFUSED
    assert not unordered.failure_reason


async def test_a_written_graph_that_is_cut_off_is_measured_as_empty(graph: str) -> None:
    async def cut(request: WriteScriptGraphRequest) -> WriteScriptGraphResponse:
        return WriteScriptGraphResponse(abstain_reason=verdict_pb2.ABSTAIN_REASON_TRUNCATED)

    async with graphs_gateway(graph, write=cut) as target:
        result = await graphs_result(target, asked(task=GENERATE))
    (measured,) = result.graphs
    assert measured.failure_reason == verdict_pb2.ABSTAIN_REASON_TRUNCATED
    assert measured.distance.distance == 4 + 3
    assert not measured.HasField("score")
    assert [(row.measure, row.value) for row in flatten(RunSample(graphs=result))] == [
        ("edit_distance", 7),
        ("edit_distance/lower_bound", 7),
    ]


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
            PredictEdgesResponse(graph=ScriptGraph(edges=[edge("1", "2")])),
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
