"""Evaluates script graphs: each model makes a graph, which is measured on arrival.

Model calls for each model: one to order events end to end or to write a graph, n (n - 1) to order n events by
pairs, both for a pipeline. Given graphs need none. Events that judges match need one call of each judge for a
graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.evaluation.v1.graphs_pb2 import (
    EvaluateGraphsResponse,
    GivenGraph,
    GraphsResult,
    MeasuredGraph,
)
from dramaturg.judge.usage import total_usage
from dramaturg.service.concurrency import gather_all
from gateway.evaluations.graphs.measurements import GraphMeasurer
from gateway.evaluations.graphs.plan import GraphsPlan
from gateway.evaluations.graphs.predictions import GraphMaker
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.streams import Emit, Evaluation
from gateway.judges.directory import JudgeDirectory


class GraphsEvaluation(Evaluation):
    """The evaluation of one script. A model that fails abstains; the others are not affected.

    Args:
        plan: The plan of the evaluation.
        directory: The identities of judges.
        scope: What the calls of the evaluation share.
    """

    def __init__(self, plan: GraphsPlan, directory: JudgeDirectory, scope: EvaluationScope) -> None:
        super().__init__(EvaluateGraphsResponse, plan.accepted)
        self._plan = plan
        self._scope = scope
        self._measurer = GraphMeasurer(plan, directory, scope)

    async def work(self, emit: Emit) -> GraphsResult:
        graphs = await gather_all(
            [
                *(self._ask(model, emit) for model in self._plan.models),
                *(self._take(given, emit) for given in self._plan.request.graphs),
            ]
        )
        return self._result(graphs)

    async def _ask(self, model: str, emit: Emit) -> MeasuredGraph:
        made = await GraphMaker(self._plan, self._scope, model).make()
        return await self._measure(made, emit)

    async def _take(self, given: GivenGraph, emit: Emit) -> MeasuredGraph:
        return await self._measure(MeasuredGraph(model=given.model, graph=given.graph), emit)

    async def _measure(self, measured: MeasuredGraph, emit: Emit) -> MeasuredGraph:
        if self._plan.writes:
            measured.requested_event_count = len(self._plan.request.reference.events)
        await self._measurer.measure(measured)
        emit(graph=measured)
        return measured

    def _result(self, graphs: Sequence[MeasuredGraph]) -> GraphsResult:
        request = self._plan.request
        return GraphsResult(
            reference=request.reference,
            task=self._plan.task,
            tags=request.tags,
            graphs=graphs,
            usage=total_usage(
                provenance.usage
                for graph in graphs
                for provenance in (*graph.provenances, *graph.event_matches.provenances)
            ),
        )
