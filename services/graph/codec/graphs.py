"""Script graphs, their reports and their scores: decoding with limits, encoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1 import script_graph_pb2
from dramaturg.graphs.parsing.builder import MAX_ID_LENGTH, MAX_TEXT_LENGTH, ReadGraph, TooLargeError
from dramaturg.graphs.parsing.formats import Dialect, Parsed
from dramaturg.service.errors import ServiceError, Violation, invalid, invalid_fields
from dramaturg.service.validation import MAX_VIOLATIONS
from services.graph.model import (
    NewEvent,
    ScriptGraph,
    add_edge,
    add_event,
    encode_edges,
    minutes_of,
    new_graph,
    text_of,
)
from services.graph.score import Choices

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


def decode_choices(request: pb.ScoreEdgesRequest) -> Choices:
    """The options that affect scores."""
    return Choices(
        empty_rule=request.empty_rule or pb.EMPTY_RULE_PERFECT,
        orientation=request.orientation or pb.ORIENTATION_CONVENTIONAL,
        reduce=request.reduce,
        closure=request.closure,
        cluster_tag=request.cluster_tag,
    )


def check_score(message: pb.EdgeScore, field: str, *, closure: bool) -> None:
    """Checks a score of an earlier request.

    Raises:
        ServiceError: INVALID_ARGUMENT where its counts cannot be.
    """
    counts = {"counts": message.counts} | ({"closure_counts": message.closure_counts} if closure else {})
    for name, one in counts.items():
        if one.shared > min(one.predicted, one.reference):
            problem = f"is {one.shared}, more than one of the sides has edges"
            raise invalid(f"{field}.{name}.shared", problem)
