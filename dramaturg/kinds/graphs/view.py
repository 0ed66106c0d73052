"""The view of script graphs (proScript)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.graphs_pb2 import GraphsResult, MeasuredGraph
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.report.sample_view import Block, EdgeView, GraphView, JudgementView, SampleView, SubjectView
from dramaturg.report.views import abstention, number, provenances, truncate
from dramaturg.results.names import reason_name


def view(index: int, result: GraphsResult) -> SampleView:
    """The reference graph and the graph of each model, with differing edges."""
    reference = result.reference
    return SampleView(
        index=index,
        title=reference.scenario or reference.id or f"graph {index + 1}",
        sample_id=reference.id,
        facts=[("events", str(len(reference.events))), ("edges", str(len(reference.edges)))],
        blocks=[Block("Reference", graph=_graph(reference, ()), open=True)],
        subjects=[_measured(graph, reference) for graph in result.graphs],
        tags=sorted(result.tags.items()),
    )


def _graph(graph: ScriptGraph, edges: Sequence[EdgeView]) -> GraphView:
    shown = edges or [EdgeView(edge.source_id, edge.target_id) for edge in graph.edges]
    return GraphView([(event.id, truncate(event.text)) for event in graph.events], list(shown))


def _compared(graph: MeasuredGraph, reference: ScriptGraph) -> Sequence[EdgeView]:
    """The edges of both graphs; none if the graph has other events than the reference."""
    if not graph.HasField("score"):
        return ()
    predicted = {(edge.source_id, edge.target_id) for edge in graph.graph.edges}
    wanted = {(edge.source_id, edge.target_id) for edge in reference.edges}
    states = (("matched", predicted & wanted), ("missing", wanted - predicted), ("extra", predicted - wanted))
    return [EdgeView(*edge, state) for state, edges in states for edge in sorted(edges)]


def _measured(graph: MeasuredGraph, reference: ScriptGraph) -> SubjectView:
    missing = graph.abstain_reason or graph.failure_reason
    return SubjectView(
        title=f"no graph: {reason_name(missing)}" if missing else "graph",
        model=graph.model,
        graph=_graph(graph.graph, _compared(graph, reference)) if graph.graph.events else None,
        notes=[
            *_differences(graph, reference),
            *_matching(graph),
            *graph.failures,
            *(f"dropped: {text}" for text in graph.dropped),
        ],
        judgements=list(_measures(graph)),
        provenances=provenances([*graph.provenances, *graph.event_matches.provenances]),
    )


def _matching(graph: MeasuredGraph) -> Iterator[str]:
    """The flags of written events: their number, and those that a judge did not match."""
    found, requested = len(graph.graph.events), graph.requested_event_count
    if graph.HasField("graph") and requested not in (0, found):
        yield f"{found} events, {requested} requested"
    for one in graph.event_matches.unclear:
        yield f"event {one.event_id} is unmatched: {one.reason}"


def _differences(graph: MeasuredGraph, reference: ScriptGraph) -> Iterator[str]:
    compared = _compared(graph, reference)
    for state in ("missing", "extra"):
        edges = [f"{edge.source} → {edge.target}" for edge in compared if edge.state == state]
        if edges:
            yield f"{state} edges: {', '.join(edges)}"


def _measures(graph: MeasuredGraph) -> Iterator[JudgementView]:
    if graph.abstain_reason:
        yield abstention("f1", graph.abstain_reason)
        return
    if graph.HasField("score"):
        if graph.score.HasField("measures"):
            yield JudgementView("f1", "number", number(graph.score.measures.f1))
        matched = graph.score.exact_match
        yield JudgementView("exact_match", "pass" if matched else "fail", "YES" if matched else "NO")
    if graph.HasField("distance"):
        proven = "" if graph.distance.proven else f"not proven; at least {graph.distance.lower_bound}"
        yield JudgementView("edit_distance", "number", str(graph.distance.distance), rationale=proven)
