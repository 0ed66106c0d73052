"""Script graphs, their reports and their scores: decoding with limits, encoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1 import script_graph_pb2
from dramaturg.graphs.parsing.builder import MAX_ID_LENGTH, MAX_TEXT_LENGTH, ReadGraph, TooLargeError
from dramaturg.graphs.parsing.formats import Dialect, Parsed
from dramaturg.results.means import Mean, estimate_of
from dramaturg.service.errors import ServiceError, Violation, invalid, invalid_fields
from dramaturg.service.validation import MAX_VIOLATIONS
from services.graph.model import (
    Edge,
    NewEvent,
    Report,
    ScriptGraph,
    Timing,
    add_edge,
    add_event,
    minutes_of,
    new_graph,
    text_of,
)
from services.graph.score import (
    SCALES,
    Choices,
    Counts,
    EmptyRule,
    Measures,
    Orientation,
    PairScore,
    Summary,
    measure,
)

MAX_MINUTES = 1e9
"""The longest duration of an event, in minutes: some 1,900 years."""


def decode_graph(message: script_graph_pb2.ScriptGraph, field: str) -> ScriptGraph:
    """A graph.

    Args:
        message: The graph; the numbers of its events and edges are within their limits.
        field: Its path in the request, for errors.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, up to ``MAX_VIOLATIONS``.
    """
    violations: list[Violation] = []
    graph = new_graph(message.id, message.scenario)
    for index, event in enumerate(message.events):
        wrong = _event_violations(event)
        if event.id in graph:
            wrong.append(Violation("id", f"{event.id!r} names an earlier event too"))
        if wrong:
            violations += _below(f"{field}.events[{index}]", wrong)
        else:
            add_event(graph, event.id, event.text, _minutes(event))
    for index, edge in enumerate(message.edges):
        wrong = [*_id_violations("source_id", edge.source_id), *_id_violations("target_id", edge.target_id)]
        if wrong:
            violations += _below(f"{field}.edges[{index}]", wrong)
        else:
            add_edge(graph, edge.source_id, edge.target_id)
    if violations:
        raise invalid_fields(violations[:MAX_VIOLATIONS])
    return graph


def decode_event(message: script_graph_pb2.Event, field: str) -> NewEvent:
    """An event without edges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation.
    """
    violations = _event_violations(message)
    if violations:
        raise invalid_fields(_below(field, violations))
    return NewEvent(message.id, message.text, _minutes(message))


def _minutes(event: script_graph_pb2.Event) -> float | None:
    return event.duration_minutes if event.HasField("duration_minutes") else None


def _event_violations(event: script_graph_pb2.Event) -> list[Violation]:
    """The violations of an event, with paths relative to it."""
    found = [*_id_violations("id", event.id)]
    if len(event.text) > MAX_TEXT_LENGTH:
        found.append(Violation("text", f"has {len(event.text)} code points; at most {MAX_TEXT_LENGTH}"))
    minutes = _minutes(event)
    if minutes is not None and not (isfinite(minutes) and 0 <= minutes <= MAX_MINUTES):
        found.append(Violation("duration_minutes", f"is {minutes}; from 0 to {MAX_MINUTES:g}"))
    return found


def _id_violations(field: str, event: str) -> Sequence[Violation]:
    if not event.strip():
        return [Violation(field, "is required")]
    if len(event) > MAX_ID_LENGTH:
        return [Violation(field, f"has {len(event)} code points; at most {MAX_ID_LENGTH}")]
    return ()


def _below(path: str, violations: Iterable[Violation]) -> list[Violation]:
    return [violation._replace(field=f"{path}.{violation.field}") for violation in violations]


def too_large(error: TooLargeError) -> ServiceError:
    """The RPC error of a ``TooLargeError``."""
    return ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        error_reason_pb2.ERROR_REASON_TOO_LARGE,
        str(error),
        metadata={"limit": str(error.limit), "actual": str(error.actual)},
    )


def encode_graph(graph: ScriptGraph) -> script_graph_pb2.ScriptGraph:
    """Encodes a graph; events named only by edges stay undeclared."""
    return script_graph_pb2.ScriptGraph(
        id=graph.graph["id"],
        scenario=graph.graph["scenario"],
        events=[
            script_graph_pb2.Event(
                id=event, text=text_of(graph, event), duration_minutes=minutes_of(graph, event)
            )
            for event, declared in graph.nodes(data="declared")
            if declared
        ],
        edges=encode_edges(graph.edges),
    )


def encode_edges(edges: Iterable[Edge]) -> list[script_graph_pb2.EventEdge]:
    return [script_graph_pb2.EventEdge(source_id=source, target_id=target) for source, target in edges]


def decode_dialect(value: pb.GraphDialect.ValueType) -> Dialect | None:
    """Decodes a dialect; ``None`` requests detection."""
    return Dialect(value) if value else None


def encode_read_graph(graph: ReadGraph) -> script_graph_pb2.ScriptGraph:
    """Encodes a graph of a text; events named only by edges stay undeclared."""
    return script_graph_pb2.ScriptGraph(
        scenario=graph.scenario,
        events=[
            script_graph_pb2.Event(id=event, text=read.text, duration_minutes=read.minutes)
            for event, read in graph.events.items()
            if read.declared
        ],
        edges=encode_edges(graph.edges),
    )


def encode_parsed(parsed: Parsed) -> pb.ParseGraphResponse:
    """Encodes the result of parsing."""
    return pb.ParseGraphResponse(
        graph=None if parsed.graph is None else encode_read_graph(parsed.graph),
        dialect=pb.GraphDialect.ValueType(parsed.dialect),
        repairs=[
            pb.Repair(kind=pb.RepairKind.ValueType(repair.kind), text=repair.text, position=repair.position)
            for repair in parsed.repairs
        ],
        repair_count=parsed.repair_count,
    )


def encode_report(report: Report) -> pb.GraphReport:
    """Encodes a report."""
    return pb.GraphReport(
        event_count=report.event_count,
        edge_count=report.edge_count,
        acyclic=report.acyclic,
        cycle=report.cycle,
        cyclic_components=[pb.EventSet(event_ids=events) for events in report.cyclic_components],
        shortcut_edges=encode_edges(report.shortcut_edges),
        source_ids=report.sources,
        sink_ids=report.sinks,
        unreachable_ids=report.unreachable,
        isolated_ids=report.isolated,
        undeclared_ids=report.undeclared,
        max_degree=report.max_degree,
        depth=report.depth,
        timing=None if report.timing is None else _encode_timing(report.timing),
        canonical=report.canonical,
    )


def _encode_timing(timing: Timing) -> pb.Timing:
    return pb.Timing(
        total_minutes=timing.total_minutes,
        critical_path_minutes=timing.critical_path_minutes,
        critical_path=timing.critical_path,
        untimed_ids=timing.untimed,
    )


EMPTY_RULES: Mapping[pb.EmptyRule.ValueType, EmptyRule] = {
    pb.EMPTY_RULE_UNSPECIFIED: EmptyRule.PERFECT,
    pb.EMPTY_RULE_PERFECT: EmptyRule.PERFECT,
    pb.EMPTY_RULE_ZERO: EmptyRule.ZERO,
    pb.EMPTY_RULE_EXCLUDE: EmptyRule.EXCLUDE,
}
"""The rules by their numbers in the contract."""

_ORIENTATIONS: Mapping[pb.Orientation.ValueType, Orientation] = {
    pb.ORIENTATION_UNSPECIFIED: Orientation.CONVENTIONAL,
    pb.ORIENTATION_CONVENTIONAL: Orientation.CONVENTIONAL,
    pb.ORIENTATION_AS_PRINTED: Orientation.AS_PRINTED,
}


def decode_choices(request: pb.ScoreEdgesRequest) -> Choices:
    """The options that affect scores."""
    return Choices(
        empty_rule=EMPTY_RULES[request.empty_rule],
        orientation=_ORIENTATIONS[request.orientation],
        reduce=request.reduce,
        closure=request.closure,
        cluster_tag=request.cluster_tag,
    )


def decode_score(message: pb.EdgeScore, field: str, *, closure: bool) -> PairScore:
    """A score of an earlier request.

    Raises:
        ServiceError: INVALID_ARGUMENT where its counts cannot be.
    """
    return PairScore(
        id=message.id,
        counts=_decode_counts(message.counts, f"{field}.counts"),
        closure=_decode_counts(message.closure_counts, f"{field}.closure_counts") if closure else None,
        degree=message.degree,
        depth=message.depth,
        tags=dict(message.tags),
        unreduced=message.unreduced,
    )


def _decode_counts(message: pb.EdgeCounts, field: str) -> Counts:
    if message.shared > min(message.predicted, message.reference):
        raise invalid(f"{field}.shared", f"is {message.shared}, more than one of the sides has edges")
    return Counts(message.predicted, message.reference, message.shared)


def encode_score(score: PairScore, choices: Choices) -> pb.EdgeScore:
    return pb.EdgeScore(
        id=score.id,
        counts=_encode_counts(score.counts),
        measures=_encode_measures(measure(score.counts, choices)),
        exact_match=score.exact_match,
        closure_counts=None if score.closure is None else _encode_counts(score.closure),
        degree=score.degree,
        depth=score.depth,
        tags=score.tags,
        unreduced=score.unreduced,
    )


def encode_summary(summary: Summary, choices: Choices) -> pb.ScoreSummary:
    """Encodes aggregate scores."""
    return pb.ScoreSummary(
        pair_count=summary.pairs,
        exact_match_count=summary.exact_matches,
        excluded_count=summary.excluded,
        macro=_encode_means(summary.macro, summary.pairs, choices),
        micro=_encode_measures(summary.micro),
        closure_macro=_encode_means(summary.closure_macro, summary.pairs, choices),
        closure_micro=_encode_measures(summary.closure_micro),
        unreduced_count=summary.unreduced,
    )


def _encode_means(means: Mapping[str, Mean], pairs: int, choices: Choices) -> pb.EdgeEstimates | None:
    if not means:
        return None
    cluster = choices.cluster_tag or "pair"
    return pb.EdgeEstimates(
        **{name: estimate_of(mean, pairs, SCALES[name], cluster) for name, mean in means.items()}
    )


def encode_choices(choices: Choices) -> pb.ScoreEdgesResponse:
    """A response that has only the options used."""
    rule = next(number for number, known in EMPTY_RULES.items() if number and known is choices.empty_rule)
    orientation = next(
        number for number, known in _ORIENTATIONS.items() if number and known is choices.orientation
    )
    return pb.ScoreEdgesResponse(empty_rule=rule, orientation=orientation, reduce=choices.reduce)


def _encode_counts(counts: Counts) -> pb.EdgeCounts:
    return pb.EdgeCounts(predicted=counts.predicted, reference=counts.reference, shared=counts.shared)


def _encode_measures(measures: Measures | None) -> pb.EdgeMeasures | None:
    if measures is None:
        return None
    return pb.EdgeMeasures(
        precision=measures.precision,
        recall=measures.recall,
        f1=measures.f1,
        iou=measures.iou,
        edge_difference=measures.edge_difference,
        extra_edges=measures.extra_edges,
        missing_edges=measures.missing_edges,
    )
