"""Scores of edges, selection of graphs by agreement, and random baselines (proScript).

The scores are precision, recall, F1, IoU and edge difference (section 5.2), macro and micro. The paper's
printed formulas exchange precision and recall; F1 is unaffected. Undefined cases, as in the contract: if
exactly one graph has edges, every ratio is 0; if neither has, the request's rule applies.

Random graphs over given events (Table 1, random) have a fixed source and sink, because models receive the
scenario, which is the sink, and find the source trivially. Permuting the middle and random DAGs both
reproduce the paper's F1 of about 21 on its development set; chains have a lower one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import fsum, inf
from random import Random

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.results.means import SumAccumulator, estimate_of, mean_of_sums
from services.graph.model import Edge, Order, ScriptGraph, max_degree, sinks, sources, with_edges

SCALES = {
    **dict.fromkeys(("precision", "recall", "f1", "iou"), (0.0, 1.0)),
    **dict.fromkeys(("edge_difference", "extra_edges", "missing_edges"), (0.0, inf)),
}
"""The lowest and the highest value of each measure."""
_RATIOS = {pb.EMPTY_RULE_PERFECT: 1.0, pb.EMPTY_RULE_ZERO: 0.0}
"""The value of ratios if neither graph has edges; by other rules there is none."""


@dataclass(frozen=True)
class Choices:
    """The options that affect scores."""

    empty_rule: pb.EmptyRule.ValueType = pb.EMPTY_RULE_PERFECT
    orientation: pb.Orientation.ValueType = pb.ORIENTATION_CONVENTIONAL
    reduce: bool = False
    closure: bool = False
    cluster_tag: str = ""


def score_pair(
    pair_id: str,
    predicted: ScriptGraph,
    reference: ScriptGraph,
    choices: Choices,
    tags: Mapping[str, str] | None = None,
) -> pb.EdgeScore:
    """Compares the edges of two graphs; events are the same where their ids are.

    Degree and depth are the reference's.
    """
    orders = [Order(predicted), Order(reference)]
    acyclic = all(order.acyclic for order in orders) if choices.reduce else True
    degree, depth = max_degree(reference), orders[1].depth
    if choices.reduce and acyclic:
        predicted, reference = (order.reduction() for order in orders)
    counts = count_edges(predicted, reference)
    return pb.EdgeScore(
        id=pair_id,
        counts=counts,
        measures=measure(counts, choices),
        exact_match=_all_shared(counts),
        closure_counts=count_ordered_pairs(*orders) if choices.closure else None,
        degree=degree,
        depth=depth,
        tags=tags,
        unreduced=not acyclic,
    )


def _all_shared(counts: pb.EdgeCounts) -> bool:
    return counts.predicted == counts.reference == counts.shared


def count_edges(predicted: ScriptGraph, reference: ScriptGraph) -> pb.EdgeCounts:
    """Counts the edges of two graphs and those that both have."""
    guessed, wanted = set(predicted.edges), set(reference.edges)
    return pb.EdgeCounts(predicted=len(guessed), reference=len(wanted), shared=len(guessed & wanted))


def count_ordered_pairs(predicted: Order, reference: Order) -> pb.EdgeCounts:
    """Counts as ``count_edges``, but edges of the transitive closures; no event comes before itself."""
    bit = {event: 1 << i for i, event in enumerate(dict.fromkeys([*predicted.graph, *reference.graph]))}
    guessed, wanted = _rebased(predicted, bit), _rebased(reference, bit)
    shared = sum((reach & wanted.get(event, 0)).bit_count() for event, reach in guessed.items())
    return pb.EdgeCounts(
        predicted=sum(reach.bit_count() for reach in guessed.values()),
        reference=sum(reach.bit_count() for reach in wanted.values()),
        shared=shared,
    )


def _rebased(order: Order, bit: Mapping[str, int]) -> dict[str, int]:
    """What comes after each event, in the bits of ``bit``, the event itself left out."""
    if all(order.bit[event] == bit[event] for event in order.graph):
        return {event: reach & ~bit[event] for event, reach in order.after.items()}
    events = list(order.graph)
    return {
        event: sum(bit[events[i]] for i in _indices(reach) if events[i] != event)
        for event, reach in order.after.items()
    }


def _indices(bits: int) -> Iterable[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def measure(counts: pb.EdgeCounts, choices: Choices) -> pb.EdgeMeasures | None:
    """The measures of given counts; ``None`` where neither side has edges and the rule excludes that."""
    extra, missing = counts.predicted - counts.shared, counts.reference - counts.shared
    if not counts.predicted and not counts.reference:
        ratio = _RATIOS.get(choices.empty_rule)
        return None if ratio is None else pb.EdgeMeasures(precision=ratio, recall=ratio, f1=ratio, iou=ratio)
    precision = counts.shared / counts.predicted if counts.predicted else 0.0
    recall = counts.shared / counts.reference if counts.reference else 0.0
    f1 = 2 * counts.shared / (counts.predicted + counts.reference)
    if choices.orientation == pb.ORIENTATION_AS_PRINTED:
        precision, recall = recall, precision
    iou = counts.shared / (counts.shared + extra + missing)
    return pb.EdgeMeasures(
        precision=precision,
        recall=recall,
        f1=f1,
        iou=iou,
        edge_difference=extra + missing,
        extra_edges=extra,
        missing_edges=missing,
    )


def summarise(scores: Sequence[pb.EdgeScore], choices: Choices) -> pb.ScoreSummary:
    """Averages pairs: macro (the mean of each pair's measures) and micro (all edges as if of one pair)."""
    counts = [score.counts for score in scores]
    closed = scores if choices.closure else []
    closures = [score.closure_counts for score in closed]
    measures = [measure(one, choices) for one in counts]
    return pb.ScoreSummary(
        pair_count=len(scores),
        exact_match_count=sum(map(_all_shared, counts)),
        excluded_count=measures.count(None),
        unreduced_count=sum(score.unreduced for score in scores),
        macro=_macro(scores, measures, choices.cluster_tag),
        micro=_micro(counts, choices),
        closure_macro=_macro(closed, [measure(one, choices) for one in closures], choices.cluster_tag),
        closure_micro=_micro(closures, choices),
    )


def _macro(
    scores: Sequence[pb.EdgeScore], measures: Sequence[pb.EdgeMeasures | None], tag: str
) -> pb.EdgeEstimates | None:
    """The means over pairs, with intervals clustered by a tag; ``None`` where there is no pair to average."""
    clusters: defaultdict[str | int, list[pb.EdgeMeasures]] = defaultdict(list)
    for place, (score, found) in enumerate(zip(scores, measures, strict=True)):
        if found is not None:
            clusters[score.tags.get(tag, place) if tag else place].append(found)
    if not clusters:
        return None
    means = {}
    for name, scale in SCALES.items():
        sums = SumAccumulator()
        for members in clusters.values():
            sums.add_values([getattr(one, name) for one in members])
        means[name] = estimate_of(mean_of_sums(sums.sums("", ""), *scale), len(scores), scale, tag or "pair")
    return pb.EdgeEstimates(**means)


def _micro(counts: Sequence[pb.EdgeCounts], choices: Choices) -> pb.EdgeMeasures | None:
    if not counts:
        return None
    predicted, reference, shared = (
        sum(getattr(one, name) for one in counts) for name in ("predicted", "reference", "shared")
    )
    return measure(pb.EdgeCounts(predicted=predicted, reference=reference, shared=shared), choices)


def group(scores: Iterable[pb.EdgeScore], by: str) -> dict[str, list[pb.EdgeScore]]:
    """Splits scores by "degree", "depth" or the value of a tag ("" where there is none), numbers by size."""
    value_of: Callable[[pb.EdgeScore], str] = {
        "degree": lambda score: str(score.degree),
        "depth": lambda score: str(score.depth),
    }.get(by, lambda score: score.tags.get(by, ""))
    groups: dict[str, list[pb.EdgeScore]] = {}
    for score in scores:
        groups.setdefault(value_of(score), []).append(score)
    return dict(sorted(groups.items(), key=lambda item: _natural(item[0])))


def _natural(value: str) -> tuple[bool, float, str]:
    number = re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", value)
    return (number is None, float(value) if number else 0.0, value)


def select(
    graphs: Sequence[ScriptGraph], *, mean: bool, empty_rule: pb.EmptyRule.ValueType, rng: Random
) -> pb.Selection:
    """Selects the graph with the highest agreement with the others (proScript, section 4).

    Args:
        graphs: Two or more graphs over the same events.
        mean: Whether a graph's agreement is its mean F1 with all others; otherwise its highest, so that the
            two graphs of the best pair tie.
        empty_rule: The F1 if neither graph has edges.
        rng: Breaks ties.
    """
    choices = Choices(empty_rule=empty_rule)
    pairs: dict[tuple[int, int], float | None] = {}
    for i, j in combinations(range(len(graphs)), 2):
        measures = measure(count_edges(graphs[i], graphs[j]), choices)
        pairs[i, j] = None if measures is None else measures.f1
    agreement: dict[int, float] = {}
    for index in range(len(graphs)):
        values = [f1 for pair, f1 in pairs.items() if index in pair and f1 is not None]
        if values:
            agreement[index] = fsum(values) / len(values) if mean else max(values)
    found = pb.Selection(
        pairs=[pb.PairAgreement(first_index=i, second_index=j, f1=f1) for (i, j), f1 in pairs.items()]
    )
    if agreement:
        found.agreement = max(agreement.values())
        tied = [index for index, value in agreement.items() if value == found.agreement]
        found.graph_index = tied[0] if len(tied) == 1 else rng.choice(tied)
        found.tied_count = len(tied)
    return found


def majority(
    votes: Iterable[pb.Preference.ValueType], *, split: pb.Preference.ValueType
) -> pb.Preference.ValueType:
    """The preference of more than half of the votes (proScript, section 6.3), else ``split``.

    ``UNDECIDED`` votes are not counted; without other votes the result is ``UNDECIDED``.
    """
    counts = Counter(vote for vote in votes if vote != pb.PREFERENCE_UNDECIDED)
    if not counts:
        return pb.PREFERENCE_UNDECIDED
    winner, count = counts.most_common(1)[0]
    return winner if 2 * count > counts.total() else split


class NoSingleEndError(ValueError):
    """The graph does not have exactly one source and one different sink."""


def ends(graph: ScriptGraph) -> Edge:
    """The only source and the only sink.

    Raises:
        NoSingleEndError: There is not exactly one of each, or they are the same event.
    """
    first, last = sources(graph), sinks(graph)
    if len(first) != 1 or len(last) != 1 or first == last:
        raise NoSingleEndError(
            f"has {len(first)} sources and {len(last)} sinks; it needs one of each, and different"
        )
    return first[0], last[0]


def draw(
    graph: ScriptGraph, kind: pb.BaselineKind.ValueType, rng: Random, edge_probability: float
) -> ScriptGraph:
    """Draws a graph over the events of ``graph``.

    Args:
        graph: A graph with one source and one sink.
        kind: How to draw; see ``BaselineKind`` in the contract.
        rng: The random generator.
        edge_probability: For ``RANDOM_DAG``, the probability of each edge before the reduction.

    Raises:
        NoSingleEndError: The graph has not one source and one sink.
    """
    source, sink = ends(graph)
    middle = [event for event in graph if event not in {source, sink}]
    order = rng.sample(middle, len(middle))
    if kind == pb.BASELINE_KIND_PERMUTE_MIDDLE:
        renamed = dict(zip(middle, order, strict=True)) | {source: source, sink: sink}
        return with_edges(graph, ((renamed[before], renamed[after]) for before, after in graph.edges))
    if kind == pb.BASELINE_KIND_RANDOM_CHAIN:
        return with_edges(graph, pairwise([source, *order, sink]))
    drawn = (pair for pair in combinations(order, 2) if rng.random() < edge_probability)
    inner = Order(with_edges(graph.subgraph(order), drawn)).reduction()
    first, last = sources(inner), sinks(inner)
    joined = [(source, event) for event in first] + [(event, sink) for event in last]
    return with_edges(graph, [*(joined or [(source, sink)]), *inner.edges])


def expected_f1(graph: ScriptGraph) -> float:
    """The mean F1 of ``PERMUTE_MIDDLE`` against the graph itself, over all permutations, in closed form.

    An edge between two of the ``k`` middle events is matched with probability 1 / (k (k - 1)), one between an
    end and the middle with 1 / k. The drawn graph has as many edges as the graph, so F1, precision and recall
    are equal.

    Raises:
        NoSingleEndError: The graph has not one source and one sink.
    """
    source, sink = ends(graph)
    k = len(graph) - 2
    fixed = int(graph.has_edge(source, sink))
    first = graph.out_degree(source) - fixed
    last = graph.in_degree(sink) - fixed
    edges = graph.number_of_edges()
    inner = edges - first - last - fixed
    hits = float(fixed)
    if k > 0:
        hits += (first**2 + last**2) / k
    if k > 1:
        hits += inner**2 / (k * (k - 1))
    return hits / edges
