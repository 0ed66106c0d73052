"""The judgements of methods on pairs of texts, and their correlations with people (DRPE)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dramaturg.api.alignment.v1 import correlation_pb2
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1.pairs_pb2 import PairComparison, PairResult
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.results.pairs import BY_CRITERION, comparisons

BY_ROLES = "roles"
"""The method of DRPE."""
LONGER = "longer"
"""The baseline that prefers the longer text."""
DRPE_SCORE = " (DRPEScore)"
"""Ends the name of a method's scores by equation 4 of DRPE."""


class Judgement(NamedTuple):
    """The judgement of one method on one pair."""

    choice: pb.Preference.ValueType
    """The preferred text. ``PREFERENCE_ABSTAIN``: none."""
    score: float | None = None
    """The score of the first text, larger for better. None: there is no score."""
    reason: AbstainReason.ValueType = verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    """The reason of an abstention."""


def by_difference(difference: float) -> Judgement:
    """The judgement of a measure by which the larger value is better."""
    if difference == 0:
        return Judgement(pb.PREFERENCE_TIE, 0.0)
    return Judgement(pb.PREFERENCE_FIRST if difference > 0 else pb.PREFERENCE_SECOND, difference)


def named_comparisons(result: PairResult, count: str) -> Iterator[tuple[str, PairComparison]]:
    """Each comparison under the name of its method, with the judge's where a panel judged.

    The vote by a criterion is a comparison, too.

    Args:
        result: The result of a pair.
        count: The requested number of roles. Empty: not stated.
    """
    seats: Counter[str] = Counter()
    named = list(comparisons(result))
    sizes = Counter(one.method for one in named)
    for one in named:
        seats[one.method] += 1
        name = f"{one.method} k={count}" if count and one.method == BY_ROLES else one.method
        yield (f"{name} {_seat(one, seats[one.method])}" if sizes[one.method] > 1 else name), one


def _seat(one: PairComparison, place: int) -> str:
    return f"[{place}: {one.judge}]"


def judgement_of(comparison: pb.ComparePairResponse) -> Judgement:
    """The judgement of a comparison."""
    if comparison.preference == pb.PREFERENCE_ABSTAIN:
        reason = next(
            (vote.abstain_reason for vote in comparison.votes), verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
        )
        return Judgement(comparison.preference, None, reason)
    known = comparison.HasField("first_vote_share")
    return Judgement(comparison.preference, comparison.first_vote_share if known else None)


def drpe_difference(comparison: pb.ComparePairResponse) -> float | None:
    """Equation 4 for the first text less that for the second; None where a vote has no confidence."""
    if comparison.preference == pb.PREFERENCE_ABSTAIN:
        return None
    if not (comparison.HasField("first_drpe_score") and comparison.HasField("second_drpe_score")):
        return None
    return comparison.first_drpe_score - comparison.second_drpe_score


def is_baseline(method: str) -> bool:
    """Whether a method is a baseline: all are but the roles and the criteria."""
    return not method.startswith((BY_ROLES, BY_CRITERION))


def best_baseline(response: correlation_pb2.CorrelateScoresResponse) -> str:
    """The baseline of the largest absolute Pearson correlation (section 4.1); empty if there is none."""
    pearson = {
        one.measure: abs(one.pearson.value)
        for one in response.measures
        if one.pearson.HasField("value") and is_baseline(one.measure)
    }
    return max(pearson, key=lambda name: (pearson[name], name), default="")


def roles_against(
    baseline: str, response: correlation_pb2.CorrelateScoresResponse
) -> Sequence[correlation_pb2.CorrelationDifference]:
    """Each method of roles as the first measure against a baseline as the second.

    A positive t says that the method correlates more strongly with people than the baseline.
    """
    found = []
    for one in response.differences:
        if baseline not in (one.first_measure, one.second_measure):
            continue
        pair = one if one.second_measure == baseline else _reversed(one)
        if not is_baseline(pair.first_measure):
            found.append(pair)
    return found


def _reversed(pair: correlation_pb2.CorrelationDifference) -> correlation_pb2.CorrelationDifference:
    """The comparison of the second measure with the first: figures of differences have the other sign."""
    turned = correlation_pb2.CorrelationDifference()
    turned.CopyFrom(pair)
    turned.first_measure, turned.second_measure = pair.second_measure, pair.first_measure
    for estimate in (turned.williams_t, turned.kendall_difference):
        if estimate.HasField("value"):
            estimate.value = -estimate.value
        if estimate.HasField("lower"):
            estimate.lower, estimate.upper = -estimate.upper, -estimate.lower
    return turned
