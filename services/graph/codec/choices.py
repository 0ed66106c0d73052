"""Messages of edit distances, aggregation, selection and random baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.graphs.parsing.builder import TooLargeError
from dramaturg.service.errors import invalid
from services.graph.codec.graphs import decode_event, decode_graph, encode_graph
from services.graph.cycles import FeedbackArcSet, Weighted, events_on_cycles, remove_lightest
from services.graph.distance.problem import UNMAPPED, Edits, Mode, Problem
from services.graph.model import (
    Matrix,
    Order,
    ScriptGraph,
    add_edge,
    add_event,
    equal_ids,
    equal_texts,
    given_pairs,
    new_graph,
    reduce_if_acyclic,
)
from services.graph.score import NoSingleEndError, draw, expected_f1, majority, select

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
            edits=pb.EditCounts(**asdict(edits)),
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


DEFAULT_EDGE_PROBABILITY = 0.7
"""With this, ``RANDOM_DAG`` has the paper's mean numbers of edges."""
DEFAULT_AGREEMENT = 0.65
"""The paper's cut-off (proScript, section 4)."""
DEFAULT_PROBABILITY = 0.5
"""Above this an edge is more likely than not."""

MAX_CYCLIC_EVENTS = 30
"""The most events on common cycles for which a minimum feedback arc set is searched."""


@dataclass(frozen=True)
class WeightedPairs:
    """The edges above the threshold, by event index."""

    edges: list[Weighted]
    threshold: float


def decode_pairs(request: pb.AggregatePairsRequest) -> WeightedPairs:
    """The edges that the probabilities make.

    Raises:
        ServiceError: INVALID_ARGUMENT where an event is repeated or unknown, or a pair repeated.
        TooLargeError: An exact search is wanted and more than ``MAX_CYCLIC_EVENTS`` lie on common cycles.
    """
    place: dict[str, int] = {}
    for i, message in enumerate(request.events):
        event = decode_event(message, f"events[{i}]")
        if event.id in place:
            raise invalid(f"events[{i}].id", f"{event.id!r} names an earlier event too")
        place[event.id] = i
    threshold = request.threshold if request.HasField("threshold") else DEFAULT_PROBABILITY
    weights: dict[tuple[str, str], float] = {}
    for i, pair in enumerate(request.pairs):
        ends = (pair.source_id, pair.target_id)
        for side, event_id in zip(("source_id", "target_id"), ends, strict=True):
            if event_id not in place:
                raise invalid(f"pairs[{i}].{side}", f"{event_id!r} is none of the events")
        if ends[0] == ends[1]:
            raise invalid(f"pairs[{i}].target_id", "is the source")
        if ends in weights:
            raise invalid(f"pairs[{i}]", "repeats an earlier pair")
        weights[ends] = pair.probability
    edges = [(place[s], place[t], weight) for (s, t), weight in weights.items() if weight > threshold]
    if request.cycle_policy == pb.CYCLE_POLICY_MIN_FAS:
        largest = max(map(len, events_on_cycles(edges)), default=0)
        if largest > MAX_CYCLIC_EVENTS:
            raise TooLargeError("events on common cycles", limit=MAX_CYCLIC_EVENTS, actual=largest)
    return WeightedPairs(edges, threshold)


def aggregate_pairs(
    weighted: WeightedPairs, arcs: FeedbackArcSet | None, request: pb.AggregatePairsRequest
) -> pb.AggregatePairsResponse:
    """The graph that is left when the cycles are broken; lightest edges first if not told how."""
    arcs = arcs or remove_lightest(weighted.edges, len(request.events))
    graph = new_graph()
    for message in request.events:
        event = decode_event(message, "events")
        add_event(graph, event.id, event.text, event.minutes)
    ids = list(graph)
    removed = {(source, target) for source, target, _ in arcs.removed}
    for source, target, _ in weighted.edges:
        if (source, target) not in removed:
            add_edge(graph, ids[source], ids[target])
    return pb.AggregatePairsResponse(
        graph=encode_graph(graph if request.keep_shortcuts else Order(graph).reduction()),
        removed=[
            pb.PairProbability(source_id=ids[source], target_id=ids[target], probability=weight)
            for source, target, weight in arcs.removed
        ],
        removed_weight=arcs.weight,
        proven=arcs.proven,
        cycle_policy=request.cycle_policy or pb.CYCLE_POLICY_PAPER_SCC,
        threshold=weighted.threshold,
    )


def aggregate_preferences(request: pb.AggregatePreferencesRequest) -> pb.AggregatePreferencesResponse:
    """Decides every comparison.

    Raises:
        ServiceError: INVALID_ARGUMENT where a vote is not stated.
    """
    rule = request.split_rule or pb.SPLIT_RULE_UNDECIDED
    split = pb.PREFERENCE_EQUAL if rule == pb.SPLIT_RULE_EQUAL else pb.PREFERENCE_UNDECIDED
    response = pb.AggregatePreferencesResponse(split_rule=rule)
    decided: list[pb.Preference.ValueType] = []
    for index, comparison in enumerate(request.comparisons):
        if pb.PREFERENCE_UNSPECIFIED in comparison.votes:
            raise invalid(f"comparisons[{index}].votes", "holds a vote that is not stated")
        decided.append(majority(comparison.votes, split=split))
        response.decisions.add(
            id=comparison.id, preference=decided[-1], votes=_count_preferences(comparison.votes)
        )
    response.counts.CopyFrom(_count_preferences(decided))
    return response


def _count_preferences(preferences: Iterable[pb.Preference.ValueType]) -> pb.PreferenceCounts:
    counts = Counter(preferences)
    return pb.PreferenceCounts(
        better=counts[pb.PREFERENCE_BETTER],
        equal=counts[pb.PREFERENCE_EQUAL],
        worse=counts[pb.PREFERENCE_WORSE],
        undecided=counts[pb.PREFERENCE_UNDECIDED],
    )


def draw_baselines(request: pb.DrawBaselineRequest) -> pb.DrawBaselineResponse:
    """Draws one graph for each given one.

    Raises:
        ServiceError: INVALID_ARGUMENT where a graph has not one source and one sink.
    """
    kind = request.kind or pb.BASELINE_KIND_PERMUTE_MIDDLE
    probability = (
        request.edge_probability if request.HasField("edge_probability") else DEFAULT_EDGE_PROBABILITY
    )
    response = pb.DrawBaselineResponse(kind=kind, seed=request.seed, edge_probability=probability)
    for index, message in enumerate(request.graphs):
        field = f"graphs[{index}]"
        graph = decode_graph(message, field)
        # A seed of its own for each graph, so that a data set can be drawn in parts.
        rng = Random(f"{request.seed}/{request.first_index + index}")  # noqa: S311
        try:
            response.graphs.append(encode_graph(draw(graph, kind, rng, probability)))
            if kind == pb.BASELINE_KIND_PERMUTE_MIDDLE:
                response.expected_f1.append(expected_f1(graph))
        except NoSingleEndError as error:
            raise invalid(field, str(error)) from error
    return response


def select_by_agreement(request: pb.SelectByAgreementRequest) -> pb.SelectByAgreementResponse:
    """Decides which scripts to keep, and which graph of each.

    Raises:
        ServiceError: INVALID_ARGUMENT where graphs of one script have different events.
    """
    rule = request.rule or pb.AGREEMENT_RULE_BEST_PAIR
    threshold = request.threshold if request.HasField("threshold") else DEFAULT_AGREEMENT
    response = pb.SelectByAgreementResponse(
        threshold=threshold,
        rule=rule,
        seed=request.seed,
        empty_rule=request.empty_rule or pb.EMPTY_RULE_PERFECT,
    )
    for index, script in enumerate(request.scripts):
        field = f"scripts[{index}]"
        graphs = [decode_graph(graph, f"{field}.graphs[{i}]") for i, graph in enumerate(script.graphs)]
        for i, graph in enumerate(graphs):
            if set(graph) != set(graphs[0]):
                raise invalid(f"{field}.graphs[{i}]", "has other events than the first graph")
        selection = select(
            graphs,
            mean=rule == pb.AGREEMENT_RULE_MEAN,
            empty_rule=response.empty_rule,
            rng=Random(f"{request.seed}/{script.id or index}"),  # noqa: S311
        )
        selection.id = script.id
        selection.kept = selection.HasField("agreement") and selection.agreement >= threshold
        response.selections.append(selection)
    response.kept_count = sum(selection.kept for selection in response.selections)
    return response
