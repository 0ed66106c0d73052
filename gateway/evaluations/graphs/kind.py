"""The kind ``graphs``: proScript."""

from __future__ import annotations

from collections.abc import Iterator

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest, GraphsResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.judge.roles import AUTHOR, EDGES, EMBEDDING, GRAPH
from dramaturg.results.graphs import GRAPHS
from gateway.evaluations.graphs.evaluation import GraphsEvaluation
from gateway.evaluations.graphs.plan import plan_graphs
from gateway.evaluations.graphs.summary import GraphsKindSummary
from gateway.evaluations.kind import EvaluationContext, RunKind


class GraphsKind(RunKind):
    method = "EvaluateGraphs"
    request_type = EvaluateGraphsRequest
    items = ("models", "graphs")
    name = "graphs"
    results = GRAPHS
    summary = GraphsKindSummary()
    roles = (AUTHOR, EDGES, GRAPH, EMBEDDING)

    def plan(self, request: EvaluateGraphsRequest, context: EvaluationContext) -> GraphsEvaluation:
        return GraphsEvaluation(plan_graphs(request, context.registry), context.timeouts)

    def _apply_options(self, request: EvaluateGraphsRequest, spec: RunSpec) -> None:
        for field in ("task", "method", "cycle_policy", "distance_mode", "reduce", "event_matching"):
            if value := getattr(spec.graphs, field):
                setattr(request, field, value)
        if spec.graphs.HasField("match_threshold"):
            request.match_threshold = spec.graphs.match_threshold

    def model_provenances(self, result: GraphsResult) -> Iterator[tuple[str, Provenance]]:
        for graph in result.graphs:
            yield from ((graph.model, provenance) for provenance in graph.provenances)
