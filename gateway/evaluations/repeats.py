"""Repeats: a judge is asked several times, and its independent answers become one.

The confidence that is measured is that of self-consistency (Wang et al. 2023): how far the answers agree. It
stands beside the confidence that the judge states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairResponse, RoleVote
from dramaturg.api.judging.v1.rating_judge_service_pb2 import Rating
from dramaturg.judge.provenance import merge
from dramaturg.judge.role_sets import combine_votes
from dramaturg.judge.roles import PAIR_JUDGE, RATING_JUDGE, JudgeRole, Role
from dramaturg.service.errors import invalid
from dramaturg.service.threads import gather_all
from gateway.evaluations.panels import count_repeats
from gateway.judges.selection import JudgeAssignment

Answer = TypeVar("Answer")

TEMPERATURE = 1.0
"""The temperature of repeats where none is requested, or 0: equal answers would measure nothing."""
_LARGEST_SEED = 2**63 - 1
_RATINGS = CriterionScale(lowest=1, highest=10)
_UNIT = CriterionScale(lowest=0, highest=1)


def has_repeats(role: Role) -> bool:
    """Whether judges of a role are asked several times: those of verdicts, ratings and pairs."""
    return isinstance(role, JudgeRole) or role in (RATING_JUDGE, PAIR_JUDGE)


def repeat_count(role: Role, options: JudgeOptions) -> int:
    """How often a judge of a role is asked."""
    return max(options.repeats, 1) if has_repeats(role) else 1


def check_repeats(options: JudgeOptions, roles: Sequence[Role]) -> None:
    """Refuses repeats in an evaluation whose roles have none.

    Raises:
        ServiceError: INVALID_ARGUMENT.
    """
    if options.repeats > 1 and not any(map(has_repeats, roles)):
        raise invalid("options.repeats", "must be 0 or 1: no judge gives verdicts, ratings or preferences")


def set_repeat(options: JudgeOptions, requested: JudgeOptions, repeat: int) -> None:
    """Makes the options of one repeat differ from those of the others.

    The index of the repeat is part of the address of a completion, so that neither a cache nor a call in
    progress answers for another one.

    Args:
        options: The options of the call, changed in place.
        requested: Those of the request.
        repeat: The repeat, from 0.
    """
    count = requested.repeats
    if count < 2:
        return
    options.repeat_index = requested.repeat_index * count + repeat
    if not options.sampling.temperature:
        options.sampling.temperature = TEMPERATURE
    if options.sampling.HasField("seed"):
        seed = options.sampling.seed
        options.sampling.seed = seed + repeat if seed <= _LARGEST_SEED - count else seed - repeat


async def repeated(
    assignment: JudgeAssignment,
    options: JudgeOptions,
    ask: Callable[[JudgeAssignment], Coroutine[Any, Any, Answer]],
    combine: Callable[[Sequence[Answer]], Answer],
) -> Answer:
    """Asks a judge as often as the options say, at once.

    Args:
        assignment: The judge.
        options: The options of the request.
        ask: Asks for one answer; the assignment that it gets has the index of the repeat.
        combine: Makes one answer of several.
    """
    count = repeat_count(assignment.role, options)
    if count == 1:
        return await ask(assignment)
    return combine(await gather_all([ask(replace(assignment, repeat=index)) for index in range(count)]))


def combine_assessments(
    answers: Sequence[CandidateAssessment], scales: Mapping[str, CriterionScale]
) -> CandidateAssessment:
    """One assessment: the majority of outcomes, or the mean of the scores on a scale.

    Args:
        answers: The assessments of one candidate, with verdicts on the same criteria in the same order.
        scales: The scales of the criteria that are scored.
    """
    combined = CandidateAssessment()
    combined.CopyFrom(answers[0])
    assessment = combined.assessment
    del assessment.verdicts[:]
    verdicts: dict[str, list[Verdict]] = {}
    for one in answers:
        for verdict in one.assessment.verdicts:
            verdicts.setdefault(verdict.criterion, []).append(verdict)
    for criterion, repeats in verdicts.items():
        assessment.verdicts.append(_combine_verdicts(combined.judge, repeats, scales.get(criterion)))
    assessment.provenance.CopyFrom(_merged(one.assessment.provenance for one in answers))
    combined.latency.CopyFrom(max((one.latency for one in answers), key=_nanoseconds))
    return combined


def _combine_verdicts(judge: str, verdicts: Sequence[Verdict], scale: CriterionScale | None) -> Verdict:
    verdict = count_repeats(judge, verdicts)
    stated = [one.confidence for one in verdicts if one.HasField("confidence")]
    if verdict.outcome == verdict_pb2.OUTCOME_ABSTAIN:
        return verdict
    decided = [one for one in verdicts if one.outcome != verdict_pb2.OUTCOME_ABSTAIN]
    measured = closeness([one.score for one in decided], scale or _UNIT)
    if verdict.outcome != verdict_pb2.OUTCOME_SCORED:
        agreeing = [one for one in decided if one.outcome == verdict.outcome]
        measured = len(agreeing) / len(decided)
        stated = [one.confidence for one in agreeing if one.HasField("confidence")]
        graded = [one.score for one in decided if one.HasField("score")]
        if len(graded) == len(decided):
            verdict.score = fmean(graded)
    if len(decided) > 1:
        verdict.measured_confidence = measured
    if stated:
        verdict.confidence = fmean(stated)
    return verdict


def closeness(scores: Sequence[float], scale: CriterionScale) -> float:
    """1 less the standard deviation of scores as a share of the largest on their scale, half its length."""
    return 1 - pstdev(scores) / ((scale.highest - scale.lowest) / 2)


def combine_ratings(answers: Sequence[Rating]) -> Rating:
    """One rating: the mean of those that do not abstain; else the first abstention."""
    rated = [one for one in answers if one.HasField("value")]
    combined = Rating()
    combined.CopyFrom(rated[0] if rated else answers[0])
    combined.provenance.CopyFrom(_merged(one.provenance for one in answers))
    if rated:
        values = [one.value for one in rated]
        combined.value = fmean(values)
        if len(values) > 1:
            combined.measured_confidence = closeness(values, _RATINGS)
        listed = ", ".join(f"{one.value:g}" if one.HasField("value") else "abstained" for one in answers)
        combined.rationale = f"Repeats: {listed}. {rated[0].rationale}".strip()
    return combined


def combine_comparisons(answers: Sequence[ComparePairResponse]) -> ComparePairResponse:
    """One comparison: the vote that most repeats of each role have, then the majority of the roles.

    A role whose repeats have no such vote abstains (ABSTAIN_REASON_PANEL_SPLIT).
    """
    combined = combine_votes(
        [_repeated_vote(votes) for votes in zip(*(one.votes for one in answers), strict=False)]
    )
    combined.provenance.CopyFrom(_merged(one.provenance for one in answers))
    if combined.preference == pairs.PREFERENCE_ABSTAIN:
        return combined
    decided = [one for one in answers if one.preference != pairs.PREFERENCE_ABSTAIN]
    if len(decided) > 1:
        agreeing = sum(one.preference == combined.preference for one in decided)
        combined.measured_confidence = agreeing / len(decided)
    return combined


def _repeated_vote(votes: Sequence[RoleVote]) -> RoleVote:
    combined = RoleVote()
    combined.CopyFrom(votes[0])
    del combined.ballots[:]
    combined.ballots.extend(ballot for one in votes for ballot in one.ballots)
    combined.inconsistent = any(one.inconsistent for one in votes)
    counts = Counter(one.preference for one in votes if one.preference != pairs.PREFERENCE_ABSTAIN)
    if not counts:
        return combined
    (preference, most), *others = counts.most_common()
    combined.ClearField("abstain_reason")
    combined.ClearField("confidence")
    if others and others[0][1] == most:
        combined.preference = pairs.PREFERENCE_ABSTAIN
        combined.abstain_reason = verdict_pb2.ABSTAIN_REASON_PANEL_SPLIT
        return combined
    combined.preference = preference
    agreeing = [one for one in votes if one.preference == preference]
    if all(one.HasField("confidence") for one in agreeing):
        combined.confidence = fmean(one.confidence for one in agreeing)
    return combined


def _merged(parts: Iterable[Provenance]) -> Provenance:
    """The provenance of all answers, signed as the first one."""
    provenances = list(parts)
    merged, first = merge(provenances), provenances[0]
    merged.name, merged.version, merged.contract = first.name, first.version, first.contract
    merged.registered_name = first.registered_name
    merged.latency.CopyFrom(max((one.latency for one in provenances), key=_nanoseconds))
    return merged


def _nanoseconds(duration: Duration) -> int:
    return duration.ToNanoseconds()
