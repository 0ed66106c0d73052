"""Edit distances: from two graphs to a problem over indices, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.graphs.parsing.graph import TooLargeError
from dramaturg.service.errors import invalid
from services.graph.codec.graphs import decode_graph
from services.graph.distance.problem import UNMAPPED, Edits, Mode, Problem
from services.graph.model import Matrix, ScriptGraph, equal_ids, equal_texts, given_pairs
from services.graph.order import reduce_if_acyclic

MAX_DISTANCE_EVENTS = 40
"""The most events of a graph whose edit distance is measured."""

_MODES: Mapping[pb.DistanceMode.ValueType, Mode] = {
    pb.DISTANCE_MODE_PROSCRIPT: Mode.PROSCRIPT,
    pb.DISTANCE_MODE_STRUCTURAL: Mode.STRUCTURAL,
    pb.DISTANCE_MODE_ANCHORED: Mode.ANCHORED,
    pb.DISTANCE_MODE_LABEL_FREE: Mode.LABEL_FREE,
}


@dataclass(frozen=True)
class Measurement:
    """A decoded request: the problem, and the data to decode its solution.

    Attributes:
        problem: The problem, its first graph the smaller one.
        swapped: Whether that is the request's second.
        events: The ids of both graphs' events in the order of the request.
        head: The response as far as it is known before.
    """

    problem: Problem
    swapped: bool
    events: tuple[list[str], list[str]]
    head: pb.MeasureEditDistanceResponse

    def encode(self, solution: Mapping[str, Any]) -> pb.MeasureEditDistanceResponse:
        """The response for a solution, as the solver's process writes it."""
        edits = Edits(**solution["edits"])
        pairs = [(i, k) for i, k in enumerate(solution["mapping"]) if k != UNMAPPED]
        if self.swapped:
            edits = edits.reversed()
            pairs = sorted((k, i) for i, k in pairs)
        first, second = self.events
        response = pb.MeasureEditDistanceResponse(
            distance=edits.cost,
            proven=solution["lower"] == edits.cost,
            lower_bound=solution["lower"],
            upper_bound=edits.cost,
            edits=_encode_edits(edits),
            edits_proven=solution["edits_proven"],
            mapping=[pb.EventPair(first_id=first[i], second_id=second[k]) for i, k in pairs],
        )
        response.MergeFrom(self.head)
        return response


def decode_measurement(request: pb.MeasureEditDistanceRequest) -> Measurement:
    """Makes a request ready.

    Raises:
        ServiceError: INVALID_ARGUMENT where the request is at fault.
        TooLargeError: A graph has more than ``MAX_DISTANCE_EVENTS`` events.
    """
    first, second = decode_graph(request.first, "first"), decode_graph(request.second, "second")
    for graph in (first, second):
        if len(graph) > MAX_DISTANCE_EVENTS:
            raise TooLargeError("events", limit=MAX_DISTANCE_EVENTS, actual=len(graph))
    mode = request.mode or pb.DISTANCE_MODE_PROSCRIPT
    rule = request.label_rule or pb.LABEL_RULE_NORMALISED_TEXT
    reduced = [reduce_if_acyclic(graph) for graph in (first, second)] if request.reduce else []
    is_reduced = bool(reduced) and all(graph is not None for graph in reduced)
    if is_reduced:
        first, second = (graph for graph in reduced if graph is not None)
    equal = _equal(request, first, second, rule)
    if _MODES[mode] is Mode.LABEL_FREE:
        equal = tuple((True,) * len(second) for _ in first)
    swapped = len(first) > len(second)
    small, large = (second, first) if swapped else (first, second)
    return Measurement(
        problem=Problem(
            sizes=(len(small), len(large)),
            first_edges=_indexed(small),
            second_edges=_indexed(large),
            equal=_transposed(equal, len(second)) if swapped else equal,
            mode=_MODES[mode],
        ),
        swapped=swapped,
        events=(list(first), list(second)),
        head=pb.MeasureEditDistanceResponse(mode=mode, label_rule=rule, reduced=is_reduced),
    )


def _equal(
    request: pb.MeasureEditDistanceRequest,
    first: ScriptGraph,
    second: ScriptGraph,
    rule: pb.LabelRule.ValueType,
) -> Matrix:
    if rule != pb.LABEL_RULE_GIVEN and request.equal_labels:
        raise invalid("equal_labels", "is only for LABEL_RULE_GIVEN")
    if rule == pb.LABEL_RULE_ID:
        return equal_ids(first, second)
    if rule == pb.LABEL_RULE_NORMALISED_TEXT:
        return equal_texts(first, second)
    for index, pair in enumerate(request.equal_labels):
        for graph, event, side in ((first, pair.first_id, "first"), (second, pair.second_id, "second")):
            if event not in graph:
                raise invalid(
                    f"equal_labels[{index}].{side}_id", f"{event!r} is no event of the {side} graph"
                )
    return given_pairs(first, second, ((pair.first_id, pair.second_id) for pair in request.equal_labels))


def _indexed(graph: ScriptGraph) -> tuple[tuple[int, int], ...]:
    index = {event: i for i, event in enumerate(graph)}
    return tuple((index[source], index[target]) for source, target in graph.edges)


def _transposed(matrix: Matrix, width: int) -> Matrix:
    return tuple(tuple(row[column] for row in matrix) for column in range(width))


def _encode_edits(edits: Edits) -> pb.EditCounts:
    return pb.EditCounts(
        deleted_events=edits.deleted_events,
        inserted_events=edits.inserted_events,
        replaced_events=edits.replaced_events,
        deleted_edges=edits.deleted_edges,
        inserted_edges=edits.inserted_edges,
        replaced_edges=edits.replaced_edges,
    )
