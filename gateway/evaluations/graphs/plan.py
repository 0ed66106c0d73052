"""The plan of an evaluation of graphs, and checks that the ids of a graph name its events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dramaturg.api.evaluation.v1 import graphs_pb2
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest, GraphTask
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.graph.v1 import graph_service_pb2
from dramaturg.api.graph.v1.graph_service_pb2 import DistanceMode
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.graphs.scores import find_cycle
from dramaturg.judge.roles import AUTHOR, EDGES, EMBEDDING, GRAPH, RUBRIC_JUDGE, Role
from dramaturg.judge.steps import is_blank
from dramaturg.service.errors import Violation, invalid_fields
from dramaturg.service.validation import check_distinct, violations
from gateway.evaluations.checks import check_alone
from gateway.judges.registry import Registry
from gateway.judges.selection import JudgeAssignment, check_selections, select_judges

FEWEST_EVENTS, MOST_EVENTS = 2, 40
"""The limits of events to order (``generation.v1.PredictEdgesRequest``); the maximum also for writing."""

_ALONE = (AUTHOR, EDGES, GRAPH, EMBEDDING)
_ROLES = (*_ALONE, RUBRIC_JUDGE)
_ASKED = {
    graphs_pb2.GRAPH_TASK_PREDICT_EDGES: (EDGES,),
    graphs_pb2.GRAPH_TASK_GENERATE: (AUTHOR,),
    graphs_pb2.GRAPH_TASK_PIPELINE: (AUTHOR, EDGES),
}


@dataclass(frozen=True)
class GraphsPlan:
    """A valid request, its models and its judges."""

    request: EvaluateGraphsRequest
    task: GraphTask.ValueType
    """The task of the models; never unspecified."""
    models: tuple[str, ...]
    """The models. Empty name: the default of the service."""
    author: JudgeAssignment | None
    """The author of graphs. None if none is needed."""
    edges: JudgeAssignment | None
    """The predictor of edges. None if none is needed."""
    measurer: JudgeAssignment
    """The graph service: measures graphs and aggregates probabilities to graphs."""
    embedder: JudgeAssignment | None = None
    """The embedding service by which events are matched. None: they are not matched by meaning."""
    event_judges: tuple[JudgeAssignment, ...] = ()
    """The judges by which events are matched. Empty: they are not matched by judges."""

    @property
    def writes(self) -> bool:
        """Whether models write the events."""
        return self.task != graphs_pb2.GRAPH_TASK_PREDICT_EDGES

    @property
    def distance_mode(self) -> DistanceMode.ValueType | None:
        """The mode of the edit distance. None: not measured."""
        if self.request.distance_mode:
            return self.request.distance_mode
        return graph_service_pb2.DISTANCE_MODE_PROSCRIPT if self.writes else None

    def model_of(self, assignment: JudgeAssignment, model: str) -> str:
        """The model of an assignment's judge for a model of the request. Empty: the judge's default."""
        return assignment.model or model or self.request.options.model

    def accepted(self) -> EvaluationAccepted:
        """The event that states the plan."""
        accepted = EvaluationAccepted(assessment_count=len(self.models) + len(self.request.graphs))
        for assignment in (self.author, self.edges):
            if assignment is not None:
                selection = accepted.judges.add()
                selection.CopyFrom(assignment.describe())
                if len(self.models) == 1:
                    selection.model = self.model_of(assignment, self.models[0])
        accepted.judges.append(self.measurer.describe())
        matching = (*([self.embedder] if self.embedder is not None else []), *self.event_judges)
        accepted.judges.extend(one.describe() for one in matching)
        return accepted


def plan_graphs(request: EvaluateGraphsRequest, registry: Registry) -> GraphsPlan:
    """Plans the evaluation of a request that is within the contract's limits.

    Args:
        request: The request.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN;
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    task = request.task or graphs_pb2.GRAPH_TASK_PREDICT_EDGES
    models = tuple(request.models) or (() if request.graphs else ("",))
    asked: tuple[Role, ...] = _ASKED[task] if models else ()
    violations = [
        *check_graph("reference", request.reference),
        *(_check_order(request.reference) if models else ()),
        *check_distinct("models", request.models),
        *_check_given(request),
        *(_check_material(request, task) if models else ()),
        # Selections of roles that this request does not need are allowed.
        *check_selections(request.judges, _ROLES, registry.roles),
        *check_alone(request.judges, _ALONE),
        *_check_tested(request, asked),
    ]
    if violations:
        raise invalid_fields(violations)
    measured = (GRAPH, EMBEDDING) if _matches_by_meaning(request, task, registry) else (GRAPH,)
    assignments = select_judges(request.judges, (*asked, *measured), registry, "")
    by_judges = request.event_matching == graphs_pb2.EVENT_MATCHING_JUDGE
    event_judges = select_judges(request.judges, (RUBRIC_JUDGE,), registry, "") if by_judges else ()
    by_role = {assignment.role: assignment for assignment in assignments}
    return GraphsPlan(
        request=request,
        task=task,
        models=models,
        author=by_role.get(AUTHOR),
        edges=by_role.get(EDGES),
        measurer=by_role[GRAPH],
        embedder=by_role.get(EMBEDDING),
        event_judges=event_judges,
    )


def _matches_by_meaning(
    request: EvaluateGraphsRequest, task: GraphTask.ValueType, registry: Registry
) -> bool:
    if request.event_matching in (graphs_pb2.EVENT_MATCHING_TEXT, graphs_pb2.EVENT_MATCHING_EMBEDDINGS):
        return request.event_matching == graphs_pb2.EVENT_MATCHING_EMBEDDINGS
    selected = any(selection.role == EMBEDDING.name for selection in request.judges)
    served = selected or registry.default(EMBEDDING.name) is not None
    chosen = request.event_matching == graphs_pb2.EVENT_MATCHING_JUDGE
    return served and (chosen or task != graphs_pb2.GRAPH_TASK_PREDICT_EDGES)


def _check_given(request: EvaluateGraphsRequest) -> Iterator[Violation]:
    names = [graph.model for graph in request.graphs]
    for index, graph in enumerate(request.graphs):
        path = f"graphs[{index}]"
        if graph.model in request.models:
            yield Violation(f"{path}.model", f"is {graph.model!r}, which is also one of the models")
        elif graph.model in names[:index]:
            yield Violation(f"{path}.model", f"is {graph.model!r}, as is an earlier graph's")
        yield from check_graph(f"{path}.graph", graph.graph)


def _check_order(reference: ScriptGraph) -> Iterator[Violation]:
    """Finds a cycle of the reference: no order of its events is right then."""
    if cycle := find_cycle(reference):
        yield Violation("reference.edges", f"have the cycle {' -> '.join(cycle)[:500]}")


def _check_material(request: EvaluateGraphsRequest, task: GraphTask.ValueType) -> Iterator[Violation]:
    """Finds what a reference lacks for models to order or to write events."""
    reference = request.reference
    count = len(reference.events)
    if not reference.scenario.strip():
        yield Violation("reference.scenario", "is required: it is part of the prompt")
    if count > MOST_EVENTS:
        yield Violation("reference.events", f"has {count} items; models get at most {MOST_EVENTS}")
    if task != graphs_pb2.GRAPH_TASK_PREDICT_EDGES:
        return
    if count < FEWEST_EVENTS:
        yield Violation("reference.events", f"has {count} items; at least {FEWEST_EVENTS} can be ordered")
    for index, listed_event in enumerate(reference.events):
        if is_blank(listed_event.text):
            yield Violation(f"reference.events[{index}].text", "is required: it is part of the prompt")
    listed = {event.id for event in reference.events}
    for index, edge in enumerate(reference.edges):
        for side, event in (("source_id", edge.source_id), ("target_id", edge.target_id)):
            if event not in listed:
                yield Violation(
                    f"reference.edges[{index}].{side}",
                    f"is {event!r}, which is not an event of the reference",
                )


def _check_tested(request: EvaluateGraphsRequest, asked: tuple[Role, ...]) -> Iterator[Violation]:
    """Finds selections whose model would replace every model of the request.

    The second step of a pipeline, the prediction of edges, may have a separate model.
    """
    tested = asked[0].name if asked and request.models else None
    for index, selection in enumerate(request.judges):
        if selection.role == tested and selection.model:
            yield Violation(f"judges[{index}].model", "must be empty where the request names the models")


MOST_ID, MOST_TEXT = 200, 20_000
"""The maximum code points of an event's id and text (``graph.v1.Event``)."""


def check_graph(field: str, graph: ScriptGraph) -> Iterator[Violation]:
    """Finds violations that every service refuses. Cyclic graphs are valid and measured.

    Args:
        field: The path of the graph.
        graph: The graph.
    """
    found = violations(graph)
    yield from (Violation(f"{field}.{one.field}", one.description) for one in found)
    if found:
        return
    seen: set[str] = set()
    for index, event in enumerate(graph.events):
        path = f"{field}.events[{index}]"
        yield from _check_id(f"{path}.id", event.id)
        if event.id in seen:
            yield Violation(f"{path}.id", f"is {event.id!r}, as is that of an earlier event")
        if len(event.text) > MOST_TEXT:
            yield Violation(f"{path}.text", f"has {len(event.text)} code points; at most {MOST_TEXT}")
        seen.add(event.id)
    for index, edge in enumerate(graph.edges):
        yield from _check_id(f"{field}.edges[{index}].source_id", edge.source_id)
        yield from _check_id(f"{field}.edges[{index}].target_id", edge.target_id)


def _check_id(field: str, event: str) -> Iterator[Violation]:
    if not event.strip():
        yield Violation(field, "is required")
    elif len(event) > MOST_ID:
        yield Violation(field, f"has {len(event)} code points; at most {MOST_ID}")
