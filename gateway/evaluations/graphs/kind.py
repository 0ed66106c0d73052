"""The kind ``graphs`` (proScript, Tables 1 and 2): each model makes a graph, which is measured on arrival.

Model calls for each model: one to order events end to end or to write a graph, n (n - 1) to order n events by
pairs, both for a pipeline. Given graphs need none. Events that judges match need one call of each judge for a
graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.graphs_pb2 import (
    EvaluateGraphsRequest,
    EvaluateGraphsResponse,
    GivenGraph,
    GraphsResult,
    MeasuredGraph,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSample, RunSpec
from dramaturg.api.evaluation.v1.summary_pb2 import DistanceFigures, GraphFigures, Summary
from dramaturg.api.generation.v1.edge_service_pb2 import EDGE_METHOD_PAIRWISE
from dramaturg.api.graph.v1.graph_service_pb2 import EdgeScore, ScoreEdgesRequest, ScoreSummary
from dramaturg.judge.provenance import total_usage
from dramaturg.judge.roles import AUTHOR, EDGES, EMBEDDING, GRAPH, RUBRIC_JUDGE
from dramaturg.kinds.graphs import GRAPHS
from dramaturg.results.means import SumAccumulator, estimate_of, mean_of_sums
from dramaturg.service.threads import gather_all
from gateway.evaluations.graphs.measurements import GraphMeasurer
from gateway.evaluations.graphs.plan import GraphsPlan, plan_graphs
from gateway.evaluations.graphs.predictions import GraphMaker
from gateway.evaluations.graphs.summary import Counts, DistanceSums, Figures, Setup, task_name
from gateway.evaluations.kind import PlannedCalls, RunKind, text_length
from gateway.evaluations.scope import EvaluationContext, EvaluationScope
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.streams import Emit, Evaluation
from gateway.evaluations.summary import KindFigures, KindSummary
from gateway.judges.selection import JudgeAssignment

MAX_SCORES = 200_000
"""The most scores of one request (``graph.v1.ScoreEdgesRequest``)."""
_SAMPLE = "sample"
_COUNTS = (0.0, inf)
"""The ends of the scale of edits."""


class GraphsFigures(KindFigures):
    """Graphs by setup: task and model."""

    def __init__(self) -> None:
        self._samples = 0
        self._counts: defaultdict[Setup, Counts] = defaultdict(Counts)
        self._scores: defaultdict[Setup, list[EdgeScore]] = defaultdict(list)

    def add(self, parts: Sequence[GraphsResult]) -> None:
        for result in parts:
            self._samples += 1
            graphs: defaultdict[Setup, list[MeasuredGraph]] = defaultdict(list)
            for measured in result.graphs:
                setup = Setup(task_name(result.task), measured.model)
                graphs[setup].append(measured)
                if measured.HasField("score"):
                    tags = {_SAMPLE: str(self._samples)}
                    self._scores[setup].append(EdgeScore(counts=measured.score.counts, tags=tags))
            for setup, some in graphs.items():
                self._counts[setup].add(some)

    def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        for setup, counts in sorted(self._counts.items()):
            edges = self._edges(setup, statistics)
            figures = GraphFigures(
                tags=tags,
                task=setup.task,
                model=setup.model,
                graph_count=counts.graphs,
                abstentions_by_reason=counts.abstentions,
                checked_count=counts.checked,
                cyclic_count=counts.cyclic,
                removed_edge_count=counts.removed_edges,
                dropped_count=counts.dropped,
                unreduced_count=counts.unreduced,
                unmeasured_count=counts.unmeasured,
                edges=edges,
                macro_f1_abstentions_zero=Figures(counts, edges).f1_with_abstentions,
                distances=[_distances(*key, sums) for key, sums in sorted(counts.distances.items())],
                event_count_mismatch_count=counts.event_count_mismatches,
                unclear_event_count=counts.unclear_events,
            )
            summary.graphs.figures.append(figures)

    def _edges(self, setup: Setup, statistics: Statistics) -> ScoreSummary | None:
        scores = self._scores.get(setup)
        if not scores:
            return None
        if len(scores) > MAX_SCORES:
            statistics.note(f"{len(scores)} scores of {setup.model!r} exceed {MAX_SCORES}: they have no mean")
            return None
        request = ScoreEdgesRequest(scored=scores, omit_scores=True, cluster_tag=_SAMPLE)
        response = statistics.graph("ScoreEdges", request)
        return None if response is None else response.summary


class GraphsKindSummary(KindSummary):
    figures_type = GraphsFigures

    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], GraphsResult]]:
        yield {**sample.graphs.tags, **sample.tags}, sample.graphs


def _distances(mode: str, matching: str, sums: DistanceSums) -> DistanceFigures:
    def mean(one: SumAccumulator) -> Estimate:
        return estimate_of(mean_of_sums(one.sums("", ""), *_COUNTS), one.judged, _COUNTS)

    return DistanceFigures(
        mode=mode,
        matching=matching,
        measured_count=sums.measured,
        proven_count=sums.proven,
        edits_proven_count=sums.edits_proven,
        mean=mean(sums.upper),
        mean_lower_bound=sums.lower / sums.measured,
        mean_edits={edit: mean(one) for edit, one in sums.edits.items()},
    )


class GraphsEvaluation(Evaluation[GraphsPlan]):
    """The evaluation of one script. A model that fails abstains; the others are not affected."""

    response_type = EvaluateGraphsResponse

    def __init__(self, plan: GraphsPlan, context: EvaluationContext, scope: EvaluationScope) -> None:
        super().__init__(plan, context, scope)
        self._measurer = GraphMeasurer(plan, context.directory, scope)

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


_OPTIONS = ("task", "method", "cycle_policy", "distance_mode", "reduce", "event_matching", "vote_count")
_EVENT_COUNT = "it is supposed that written graphs have the requested number of events"
_LOGPROBS = "it is supposed that models give log-probabilities, so that each pair of events is one call"


class GraphsKind(RunKind):
    method = "EvaluateGraphs"
    request_type = EvaluateGraphsRequest
    planner = staticmethod(plan_graphs)
    evaluation = GraphsEvaluation
    items = ("models", "graphs")
    name = "graphs"
    results = GRAPHS
    summary = GraphsKindSummary()
    roles = (AUTHOR, EDGES, GRAPH, EMBEDDING, RUBRIC_JUDGE)

    def planned_calls(
        self, request: EvaluateGraphsRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        del spec
        plan = plan_graphs(request, context.registry)
        calls: list[PlannedCalls] = []
        for model in plan.models:
            if plan.author is not None:
                named = plan.model_of(plan.author, model)
                scenario = len(request.reference.scenario)
                calls.append(PlannedCalls(plan.author.judge, named, 1, scenario, "write_script_graph"))
            if plan.edges is not None:
                calls.append(_ordering(plan, plan.edges, plan.model_of(plan.edges, model)))
        return [*calls, *_matching(plan)]

    def _apply_options(self, request: EvaluateGraphsRequest, spec: RunSpec) -> None:
        for field in _OPTIONS:
            if value := getattr(spec.graphs, field):
                setattr(request, field, value)
        if spec.graphs.HasField("match_threshold"):
            request.match_threshold = spec.graphs.match_threshold

    def model_provenances(self, result: GraphsResult) -> Iterator[tuple[str, Provenance]]:
        for graph in result.graphs:
            yield from ((graph.model, provenance) for provenance in graph.provenances)


def _matching(plan: GraphsPlan) -> Iterator[PlannedCalls]:
    """The calls of judges that match events: one for each event of a graph whose events were written."""
    if not plan.writes:
        return
    reference = sum(map(text_length, plan.request.reference.events))
    given = [event for graph in plan.request.graphs for event in graph.graph.events]
    written = len(plan.models) * len(plan.request.reference.events)
    count = len(given) + written
    characters = sum(map(text_length, given)) + (len(plan.models) + count) * reference
    for one in plan.event_judges:
        yield PlannedCalls(
            one.judge, one.model, count, characters, assumption=_EVENT_COUNT if written else ""
        )


def _ordering(plan: GraphsPlan, edges: JudgeAssignment, model: str) -> PlannedCalls:
    """The calls that order the events of one graph."""
    reference = plan.request.reference
    scenario, events = len(reference.scenario), [text_length(event) for event in reference.events]
    if plan.request.method != EDGE_METHOD_PAIRWISE:
        return PlannedCalls(edges.judge, model, 1, scenario + sum(events), "predict_edges")
    supposed = [
        *([_EVENT_COUNT] if plan.writes else ()),
        *([_LOGPROBS] if plan.request.vote_count > 1 else ()),
    ]
    # Each ordered pair is one call, so each event is in twice as many calls as there are others.
    others = len(events) - 1
    count = len(events) * others
    return PlannedCalls(
        edges.judge,
        model,
        count,
        count * scenario + 2 * others * sum(events),
        "precedes",
        "; ".join(supposed),
    )


KIND = GraphsKind()
