"""Evaluates script graphs: every model makes its graph, and each graph is measured as soon as it is there.

Model calls: one a model to order events end to end or to write a graph, n (n - 1) to order n events pair by
pair, both for a pipeline. Graphs that are given cost none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from dramaturg.api.evaluation.v1.graphs_pb2 import (
    EvaluateGraphsResponse,
    GivenGraph,
    GraphsResult,
    MeasuredGraph,
)
from dramaturg.judge.usage import total_usage
from gateway.evaluations.calls import Patience
from gateway.evaluations.graphs.making import GraphMaker
from gateway.evaluations.graphs.measuring import GraphMeasurer
from gateway.evaluations.graphs.plan import GraphsPlan
from gateway.evaluations.streams import Emit, stream_events


class GraphsEvaluation:
    """The evaluation of one script. A model that fails abstains and touches no other.

    Args:
        plan: What to do.
        patience: How long to wait.
    """

    def __init__(self, plan: GraphsPlan, patience: Patience) -> None:
        self._plan = plan
        self._patience = patience
        self._measurer = GraphMeasurer(plan, patience)

    async def events(self) -> AsyncGenerator[EvaluateGraphsResponse]:
        """Yields that it was accepted, each graph as soon as it is measured, and the result.

        Closing it, or cancelling whoever iterates, cancels the calls that are under way.
        """
        yield EvaluateGraphsResponse(accepted=self._plan.accepted())
        async with aclosing(stream_events(self._work)) as events:
            async for event in events:
                yield event

    async def _work(self, emit: Emit[EvaluateGraphsResponse]) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [
                *(group.create_task(self._ask(model, emit)) for model in self._plan.models),
                *(group.create_task(self._take(given, emit)) for given in self._plan.request.graphs),
            ]
        emit(EvaluateGraphsResponse(result=self._result([task.result() for task in tasks])))

    async def _ask(self, model: str, emit: Emit[EvaluateGraphsResponse]) -> MeasuredGraph:
        made = await GraphMaker(self._plan, self._patience, model).make()
        return await self._measure(made, emit)

    async def _take(self, given: GivenGraph, emit: Emit[EvaluateGraphsResponse]) -> MeasuredGraph:
        return await self._measure(MeasuredGraph(model=given.model, graph=given.graph), emit)

    async def _measure(self, measured: MeasuredGraph, emit: Emit[EvaluateGraphsResponse]) -> MeasuredGraph:
        await self._measurer.measure(measured)
        emit(EvaluateGraphsResponse(graph=measured))
        return measured

    def _result(self, graphs: Sequence[MeasuredGraph]) -> GraphsResult:
        request = self._plan.request
        return GraphsResult(
            reference=request.reference,
            task=self._plan.task,
            tags=request.tags,
            graphs=graphs,
            usage=total_usage(provenance.usage for graph in graphs for provenance in graph.provenances),
        )
