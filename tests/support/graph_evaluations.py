"""Evaluations of graphs through a real gateway and graph service, and predictors of edges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.graphs_pb2 import (
    GRAPH_TASK_GENERATE,
    GRAPH_TASK_PIPELINE,
    EvaluateGraphsRequest,
    EvaluateGraphsResponse,
    GraphsResult,
    MeasuredGraph,
)
from dramaturg.api.generation.v1.authoring_graphs_pb2 import WriteScriptGraphRequest, WriteScriptGraphResponse
from dramaturg.api.generation.v1.edge_service_pb2 import (
    EDGE_METHOD_END_TO_END,
    EDGE_METHOD_PAIRWISE,
    PredictEdgesRequest,
    PredictEdgesResponse,
)
from dramaturg.api.graph.v1.graph_service_pb2 import PairProbability
from dramaturg.api.graph.v1.script_graph_pb2 import EventEdge, ScriptGraph
from dramaturg.client import DramaturgClient
from dramaturg.service.errors import ServiceError
from dramaturg.testing import serve
from gateway.app import App as Gateway
from gateway.settings import GatewaySettings, JudgeEntry
from services.graph.app import App as GraphApp
from services.graph.app import GraphSettings
from tests.support.evaluations import CALL, Method, contract
from tests.support.graphs import message

Texts = Iterable[tuple[str, str]]
"""Edges between events by their texts."""

PAIRWISE = EDGE_METHOD_PAIRWISE
GENERATE, PIPELINE = GRAPH_TASK_GENERATE, GRAPH_TASK_PIPELINE
TEXTS = {"1": "find a pan", "2": "heat oil", "3": "break the eggs", "4": "fry the eggs"}
"""The events of ``eggs``."""


def eggs(edges: str = "1>2 2>4 3>4", texts: dict[str, str] | None = None) -> ScriptGraph:
    """A script of four events, or of others, in an order such as "1>2 2>3"."""
    made = message(edges, texts or TEXTS, "eggs")
    made.scenario = "fry eggs"
    return made


def asked(**fields: Any) -> EvaluateGraphsRequest:
    """A request about ``eggs`` and one model, with these fields."""
    return EvaluateGraphsRequest(**{"reference": eggs(), "models": ["m"], **fields})


def edge(source: str, target: str) -> EventEdge:
    """An edge between two events by their ids."""
    return EventEdge(source_id=source, target_id=target)


def edges_of(graph: ScriptGraph) -> set[tuple[str, str]]:
    """A graph's edges by the ids of its events."""
    return {(edge.source_id, edge.target_id) for edge in graph.edges}


@asynccontextmanager
async def serve_graph_service() -> AsyncIterator[str]:
    """The real graph service; yields its target."""
    async with GraphApp(settings=GraphSettings(solvers=1)).open() as contracts, serve(*contracts) as server:
        yield server.target


@asynccontextmanager
async def graphs_gateway(
    graph: str,
    predict: Method | None = None,
    write: Method | None = None,
    embedding: str = "",
    **settings: Any,
) -> AsyncIterator[str]:
    """The gateway with a running graph service, maybe an edge service and an author made of functions.

    Args:
        graph: The graph service's target.
        predict: What the edge service answers.
        write: What the author writes.
        embedding: The target of an embedding service. Empty: none.
        settings: The gateway's other settings.

    Yields:
        The gateway's target.
    """
    fakes = [("edges", "PredictEdges", predict), ("author", "WriteScriptGraph", write)]
    judges = [JudgeEntry(role="graph", name="built-in", target=graph)]
    if embedding:
        judges.append(JudgeEntry(role="embedding", name="built-in", target=embedding))
    async with AsyncExitStack() as stack:
        for role, name, method in fakes:
            if method is not None:
                served = serve(contract(role, {name: method}), drain_grace_seconds=0.2)
                target = (await stack.enter_async_context(served)).target
                judges.append(JudgeEntry(role=role, name="fake", target=target))
        app = Gateway(GatewaySettings(**{"judges": tuple(judges), **settings}))
        contracts = await stack.enter_async_context(app.open())
        yield (await stack.enter_async_context(serve(*contracts, drain_grace_seconds=0.2))).target


async def graph_events(
    target: str, request: EvaluateGraphsRequest, timeout: float = 20
) -> list[EvaluateGraphsResponse]:
    """All events of an evaluation."""
    async with DramaturgClient(target) as client:
        return [event async for event in client.evaluate_graphs(request, timeout=timeout)]


async def graphs_result(target: str, request: EvaluateGraphsRequest, timeout: float = 20) -> GraphsResult:
    """The result of an evaluation."""
    return (await graph_events(target, request, timeout))[-1].result


async def only_graph(target: str, request: EvaluateGraphsRequest, timeout: float = 20) -> MeasuredGraph:
    """The only graph of an evaluation."""
    (measured,) = (await graphs_result(target, request, timeout)).graphs
    return measured


def texts_of(graph: ScriptGraph) -> set[tuple[str, str]]:
    """A graph's edges by the texts of its events."""
    text = {event.id: event.text for event in graph.events}
    return {(text[edge.source_id], text[edge.target_id]) for edge in graph.edges}


def predicting(edges: Texts) -> Method:
    """An edge service that answers with these edges, end to end or pair by pair, bought for one call."""
    wanted = set(edges)

    async def predict(request: PredictEdgesRequest) -> PredictEdgesResponse:
        ids = {event.text: event.id for event in request.events}
        if request.method != PAIRWISE:
            return end_to_end(request, [(ids[first], ids[second]) for first, second in sorted(wanted)])
        return PredictEdgesResponse(
            method=PAIRWISE,
            probabilities=[
                PairProbability(
                    source_id=ids[first],
                    target_id=ids[second],
                    probability=0.9 if (first, second) in wanted else 0.1,
                )
                for first in ids
                for second in ids
                if first != second
            ],
            probability_source="classifier",
            provenance=CALL,
        )

    return predict


def end_to_end(request: PredictEdgesRequest, edges: Texts) -> PredictEdgesResponse:
    """An answer with edges between the ids that were shown."""
    return PredictEdgesResponse(
        method=EDGE_METHOD_END_TO_END,
        graph=ScriptGraph(
            events=request.events,
            edges=[edge(source, target) for source, target in edges],
        ),
        provenance=CALL,
    )


def writing(graph: ScriptGraph, **fields: Any) -> Method:
    """An author that writes this graph, bought for one call."""

    async def write(request: WriteScriptGraphRequest) -> WriteScriptGraphResponse:
        return WriteScriptGraphResponse(graph=graph, provenance=CALL, **fields)

    return write


async def refusing(request: Any) -> Any:
    """A service that is out of order."""
    raise ServiceError(grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_UNSPECIFIED, "out of order")
