"""Normalizes a judge's answer to one valid rating, score or comparison, or an abstention."""

from __future__ import annotations

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1.dialogues_pb2 import ReplyScore
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairResponse, Preference, RoleVote
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyResponse, Rating
from dramaturg.api.judging.v1.text_scorer_service_pb2 import ScoreTextsResponse, TextScore
from gateway.evaluations.failures import Failure
from gateway.judges.selection import JudgeAssignment

LOWEST, HIGHEST = 1, 10
"""The ends of the rating scale (SimulBench, section 2.5)."""

_PREFERENCES = frozenset(
    {
        pair_judge_service_pb2.PREFERENCE_FIRST,
        pair_judge_service_pb2.PREFERENCE_SECOND,
        pair_judge_service_pb2.PREFERENCE_TIE,
        pair_judge_service_pb2.PREFERENCE_ABSTAIN,
    }
)


def no_rating(reason: AbstainReason.ValueType, rationale: str) -> Rating:
    """Returns a rating that abstains."""
    return Rating(abstain_reason=reason, rationale=rationale)


def refusal_rating() -> Rating:
    """Returns the rating of a refusal, which no judge makes."""
    return Rating(value=LOWEST, rationale="The model refused to reply.")


def refusal_preference(first: bool, second: bool) -> Preference.ValueType:
    """The preference between two replies of which at least one is a refusal.

    Args:
        first: Whether the first reply is a refusal.
        second: Whether the second reply is a refusal.
    """
    if first and second:
        return pair_judge_service_pb2.PREFERENCE_TIE
    return pair_judge_service_pb2.PREFERENCE_SECOND if first else pair_judge_service_pb2.PREFERENCE_FIRST


def normalize_rating(answer: RateReplyResponse | Failure, assignment: JudgeAssignment) -> Rating:
    """The rating of an answer. A rating that is missing, off the scale or contradictory abstains."""
    if isinstance(answer, Failure):
        return no_rating(answer.reason, f"The judge {assignment.judge.name!r} {answer.explanation}.")
    answer.rating.provenance.registered_name = assignment.judge.name
    _normalize_value(answer.rating, LOWEST, HIGHEST)
    return answer.rating


def normalize_score(
    answer: ScoreTextsResponse | Failure, assignment: JudgeAssignment, model: str
) -> ReplyScore:
    """The score of one reply. It abstains where a rating would, and without exactly one score.

    Args:
        answer: The answer of the scorer.
        assignment: The assignment of the scorer.
        model: The model that replied.
    """
    scored = ReplyScore(model=model, judge=assignment.judge.name)
    if isinstance(answer, Failure):
        scored.score.abstain_reason = answer.reason
        return scored
    scored.attribute = answer.attribute
    scored.provenance.CopyFrom(answer.provenance)
    scored.provenance.registered_name = assignment.judge.name
    if len(answer.scores) == 1:
        scored.score.CopyFrom(answer.scores[0])
    _normalize_value(scored.score, 0, 1)
    return scored


def _normalize_value(judgement: Rating | TextScore, lowest: float, highest: float) -> None:
    problem = None
    if judgement.HasField("value") and judgement.abstain_reason:
        problem = verdict_pb2.ABSTAIN_REASON_CONTRADICTORY
    elif judgement.HasField("value"):
        # Also false for NaN.
        problem = None if lowest <= judgement.value <= highest else verdict_pb2.ABSTAIN_REASON_UNPARSABLE
    elif not judgement.abstain_reason:
        problem = verdict_pb2.ABSTAIN_REASON_UNPARSABLE
    if problem is not None:
        judgement.ClearField("value")
        judgement.abstain_reason = problem


def no_comparison(reason: AbstainReason.ValueType) -> ComparePairResponse:
    """Returns a comparison that abstains."""
    abstain = pair_judge_service_pb2.PREFERENCE_ABSTAIN
    return ComparePairResponse(
        preference=abstain, votes=[RoleVote(preference=abstain, abstain_reason=reason)]
    )


def normalize_comparison(
    answer: ComparePairResponse | Failure, assignment: JudgeAssignment
) -> ComparePairResponse:
    """The comparison of an answer. A comparison without a preference abstains."""
    if isinstance(answer, Failure):
        return no_comparison(answer.reason)
    comparison = answer
    if answer.preference not in _PREFERENCES:
        comparison = no_comparison(verdict_pb2.ABSTAIN_REASON_UNPARSABLE)
        comparison.provenance.CopyFrom(answer.provenance)
    comparison.provenance.registered_name = assignment.judge.name
    return comparison
