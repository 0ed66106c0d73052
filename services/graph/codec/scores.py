"""Edge scores and the choices behind them."""

from __future__ import annotations

from collections.abc import Mapping

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.results.means import estimate_of
from dramaturg.service.errors import invalid
from services.graph.score import (
    Choices,
    Counts,
    EmptyRule,
    Measures,
    Orientation,
    PairScore,
    Summary,
    measure,
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
        macro=_encode_measures(summary.macro),
        micro=_encode_measures(summary.micro),
        closure_macro=_encode_measures(summary.closure_macro),
        closure_micro=_encode_measures(summary.closure_micro),
        unreduced_count=summary.unreduced,
        macro_rates=_encode_rates(summary, choices),
    )


def _encode_rates(summary: Summary, choices: Choices) -> pb.EdgeRates | None:
    if not summary.rates:
        return None
    cluster = choices.cluster_tag or "pair"
    rates = {name: estimate_of(one, summary.pairs, cluster=cluster) for name, one in summary.rates.items()}
    return pb.EdgeRates(**rates)


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
